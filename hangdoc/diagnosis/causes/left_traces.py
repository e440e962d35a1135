"""What one side alone has run, beside the condition that the sides are seen to have taken differently.

Often that condition only shows what another one decided: `if rows is not None:` went differently because load() was in
its `except OSError:`, whose lines that rank alone has run.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable
from dataclasses import replace

from hangdoc.diagnosis.bounds import DEEPEST, NAMED
from hangdoc.diagnosis.causes.finding import others_of
from hangdoc.diagnosis.condition.elsewhere.callables import set_to
from hangdoc.diagnosis.condition.elsewhere.ran_alone import RanAlone, ran_alone
from hangdoc.diagnosis.context import Case
from hangdoc.diagnosis.explanation import Blame, Explanation, OutsideWait
from hangdoc.diagnosis.source.guards import CONDITIONS
from hangdoc.diagnosis.source.sources import Sources
from hangdoc.diagnosis.source.syntax import enclosing_function, last_name, walk
from hangdoc.model.diagnosis import Branch, BranchAnswer, Divergence
from hangdoc.model.message import Condition, Joined, Message, Ranks

DOUBT = "that the ranks diverged at this condition is only known by the lines that ran"


def with_traces(
    case: Case,
    blame: Blame[Explanation],
    found: Divergence | None,
    *,
    doubted: bool = False,
    cited: Iterable[Condition] = (),
) -> tuple[Divergence | None, Message, str]:
    """The divergence with the conditions under which one side alone has run lines; how these are told; and what there
    is to doubt: nothing where the branch's condition asks, or tests, what they decide.

    Beside a condition that is known, only those are told that it goes by, unless it is ``doubted``, or is a loop of
    which nothing is known that ended it: no other condition is among those that are ``cited``. Then those are told
    whose suites leave a function or a round: a gradient that is clipped keeps nobody from a call.
    """
    if blame.diverged is None or found is None or not found.sides:
        return found, "", ""
    sides = (blame.culprits, others_of(case, blame))
    branch = found.branch
    known = {(branch.file, branch.line), *((a.file, a.line) for a in branch.answers)} if branch is not None else set()
    left = ran_alone(case, sides) if all(sides) else []
    left = [each for each in left if (each.file, each.guard.line) not in known]
    asking = [*known, *((point.file, point.guard.line) for point in blame.diverged.branch_points)]
    own = _own_words(case.sources, asking)
    words = _with_asked(case.sources, own)
    linked = [each for each in left if _is_linked(each, own, words)]
    open_loop = branch is not None and _is_open(branch, cited)
    ran = [each for each in left if each.leads_out] if branch is None or doubted or open_loop else []
    left = linked or ran
    if not 0 < len(left) <= NAMED:
        return found, "", ""
    if branch is None:
        first, *more = left
        branch = Branch(first.file, first.guard.line, first.guard.condition, _kind(first))
    else:
        more = left
    by = [
        BranchAnswer(
            each.function, each.file, each.guard.line, each.guard.condition, left=f"line {each.line}", ran=True
        )
        for each in more
    ]
    clauses = Joined([told(each, sides) for each in left])
    known_end = linked or (open_loop and all(each in ran for each in left))  # the loop itself is seen to have ended
    return replace(found, branch=replace(branch, answers=(*branch.answers, *by))), clauses, "" if known_end else DOUBT


def _is_open(branch: Branch, cited: Iterable[Condition]) -> bool:
    """True for a loop of which no condition that is told says why it ended; what a function returns is none."""
    own = branch.file, branch.line
    decided = any(not each.condition.startswith(("return ", "yield ")) for each in branch.answers)
    return branch.kind == "loop" and not decided and all((each.file, each.line) == own for each in cited)


def left_by_culprits(case: Case, blame: Blame[Explanation]) -> Message:
    """The conditions under which the culprits alone have run lines; '' where none is seen, or too many are.

    Example: rank 1 waits in StreamSink.emit(), and it alone has run the `return StreamSink()` under `if kind ==
    "stream":` → that `if`.
    """
    others = others_of(case, blame)
    # Who is in no call has made all those before that the others wait in.
    in_order = isinstance(blame.found, OutsideWait) and all(case.graph.on(rank) for rank in others)
    return left_by(case, blame.culprits, others, awaited=in_order)


def left_by(case: Case, ranks: tuple[int, ...], others: tuple[int, ...], *, awaited: bool = False) -> Message:
    """The same of any ranks, beside others; ``awaited``: these wait for the ranks, which have left out no call."""
    sides = (ranks, others)
    left = [each for each in ran_alone(case, sides, awaited=awaited) if each.side == 0] if all(sides) else []
    return Joined([told(each, sides) for each in left]) if 0 < len(left) <= NAMED else ""


def _kind(left: RanAlone) -> str:
    return "if" if left.guard.kind == "return" else left.guard.kind


def told(left: RanAlone, sides: tuple[tuple[int, ...], tuple[int, ...]]) -> Message:
    """'`if x > 9:` (a.py:7) was True on rank 1 and never on rank 0 (line 8 has run on rank 1 alone)'."""
    condition, ranks = Condition(left.guard.condition, left.file, left.guard.line), Ranks(sides[left.side])
    if left.guard.kind == "loop":  # the others may have come by it as well
        return [condition, f" is around line {left.line}, which has run on ", ranks, " alone"]
    how = f" was {left.guard.taken} on " if left.guard.kind in (*CONDITIONS, "return") else " was reached on "
    alone: Message = [f" (line {left.line} has run on ", ranks, " alone)"]
    return [condition, how, ranks, " and never on ", Ranks(sides[1 - left.side]), alone]


def _is_linked(left: RanAlone, own: set[str], words: set[str]) -> bool:
    """True if the conditions go by what the function answers there, or what is set beside the lines. ``own``: the names
    in the conditions; ``words``: also those in functions that they ask."""
    return (left.jumps and left.function in words) or not own.isdisjoint(left.sets)


def _own_words(sources: Sources, conditions: Iterable[tuple[str, int]]) -> set[str]:
    """The names in the conditions at these lines, and in what sets those there, two steps back.

    Example: of `while start < len(tokens):`, with `hit = self.cache.longest(tokens)` and `start = hit.length`, also
    'hit' and 'longest'.
    """
    found: set[str] = set()
    for file, line in conditions:
        tree = sources.function(file, line)
        here = enclosing_function(tree, line) if tree is not None else ast.Module([], [])
        tests = [part for n in walk(here) if getattr(n, "lineno", 0) == line for part in _tests(n)]
        own = {word for test in tests for word in _names(test)}
        read: list[ast.AST] = list(tests)
        for _ in range(DEEPEST):
            plain = {n.id for part in read for n in walk(part) if isinstance(n, ast.Name)}
            read = [value for name in plain for value in set_to(here, name).values() if value is not None]
            own = own.union(*map(_names, read))
        found |= own
    return found


def _with_asked(sources: Sources, words: set[str]) -> set[str]:
    """The names, and those in the functions that they ask."""
    found = set(words)
    for _ in range(DEEPEST):
        asked = [node for name in found for _, node in sources.user_functions(name)]
        found |= {word for node in asked for word in _names(node)}
    return found


def _tests(node: ast.AST) -> list[ast.AST]:
    """What a condition tests, or a loop goes over; what is returned, or set."""
    parts = (getattr(node, name, None) for name in ("test", "iter", "subject", "value"))
    return [part for part in parts if isinstance(part, ast.AST)]


def _names(node: ast.AST) -> set[str]:
    """The last names of what the code names."""
    return {last_name(n) for n in walk(node) if isinstance(n, ast.Name | ast.Attribute)} - {"self", ""}
