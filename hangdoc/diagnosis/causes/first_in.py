"""HD109 of a block that some ranks go through first: a call of all ranks inside it, while the others wait to enter."""

from __future__ import annotations

from hangdoc.diagnosis.calls.history import END, Token
from hangdoc.diagnosis.causes.finding import Finding
from hangdoc.diagnosis.causes.phrases import call_at, cited, line_of
from hangdoc.diagnosis.causes.registry import cause
from hangdoc.diagnosis.condition.branch_point import BranchPoint
from hangdoc.diagnosis.context import Case
from hangdoc.diagnosis.explanation import Blame, Diverged
from hangdoc.diagnosis.frames.landmarks import plain
from hangdoc.diagnosis.frames.library import is_library
from hangdoc.diagnosis.frames.stacks import same_function, user_stack
from hangdoc.diagnosis.source.guards import CONDITIONS
from hangdoc.diagnosis.source.handlers import with_at
from hangdoc.diagnosis.source.syntax import holds, text_of
from hangdoc.model.message import Condition, Message, Ranks, Verb, joined, sentence
from hangdoc.model.process import Stack

_BEHIND = " out of the block, and make it behind the block, on every rank"
_ENTERS = ("__enter__", "__aenter__")


@cause("HD109", explains=Diverged, order=148)
def called_inside_first(case: Case, blame: Blame[Diverged]) -> Finding | None:
    """HD109: the culprits call in the body of a `with` that the others may enter only when they have left it.

    Example: `with accelerator.main_process_first(): ⏎ if lost: ⏎ accelerator.gather(sizes)`; rank 0 is in the gather,
    the others in the barrier at the entrance.
    """
    gap = blame.found.gap
    if gap is None or gap.mine is None or gap.theirs is None or END in (gap.mine.op, gap.theirs.op):
        return None
    if not (gap.mine.pending and gap.theirs.pending) or not all(_goes_first(case, r, gap.theirs) for r in gap.ranks):
        return None
    block = _block(case, gap.mine.stack, gap.theirs.stack)
    if block is None:
        return None
    culprits = blame.culprits
    others = tuple(r for r in blame.found.alignment.history.members if r not in culprits)
    point = _inside(blame.found.branch_point, block)
    return Finding(
        "HD109",
        sentence(
            [
                [Ranks(culprits), " ", Verb(culprits, "calls", "call"), " ", call_at(gap.mine), " inside ", block],
                [", which ", Ranks(others), " ", Verb(others, "waits", "wait"), " to enter"],
            ]
        ),
        joined(
            _why(culprits, others),
            [cited(point.guard, point.file), f" was {point.guard.taken} on ", Ranks(culprits)] if point else "",
        ),
        ["take the call", [" at ", line] if (line := line_of(gap.mine.frame)) else "", _BEHIND],
        decided_at=cited(point.guard, point.file) if point is not None else block,
        reorders=True,
    )


def _why(culprits: tuple[int, ...], others: tuple[int, ...]) -> Message:
    return [
        [Ranks(others), " ", Verb(others, "gets", "get"), " in only when ", Ranks(culprits), " "],
        [Verb(culprits, "has", "have"), " left the block, so no call of all ranks completes in it"],
    ]


def _goes_first(case: Case, rank: int, entrance: Token) -> bool:
    """True if the rank's calls were seen, and none was made where the others wait: it enters without that call."""
    program = case.programs.get(rank)
    there = _lines(entrance.stack)
    return program is not None and all(_lines(token.stack) != there for token in program.tokens)


def _lines(stack: Stack) -> list[tuple[str, int]]:
    return [(frame.file, frame.line) for frame in stack]


def _block(case: Case, mine: Stack, theirs: Stack) -> Condition | None:
    """The `with` whose entrance ``theirs`` is in, and whose body ``mine`` is in; None where there is none."""
    outer = max((i for i, frame in enumerate(theirs) if plain(frame.function) in _ENTERS), default=None)
    head = next((f for f in theirs[outer:] if not is_library(f)), None) if outer is not None else None
    tree = case.sources.function(head.file, head.line) if head is not None else None
    found = with_at(tree, head.line) if tree is not None and head is not None else None
    if head is None or found is None or not any(holds(item.context_expr, head.line) for item in found.items):
        return None
    inside = next((frame for frame in user_stack(mine) if same_function(frame, head)), None)
    if inside is None or not any(holds(statement, inside.line) for statement in found.body):
        return None
    return Condition(f"with {', '.join(text_of(item.context_expr) for item in found.items)}:", head.file, found.lineno)


def _inside(point: BranchPoint | None, block: Condition) -> BranchPoint | None:
    """The condition in the block by which the culprits came to the call."""
    if point is None or point.guarded != 0 or point.guard.kind not in CONDITIONS:
        return None
    return point if point.file != block.file or point.guard.line > block.line else None
