"""HD702: some ranks shut the process group down while the others still communicate."""

from __future__ import annotations

from hangdoc.diagnosis.calls.history import END, Token
from hangdoc.diagnosis.causes.deciding import what_decided
from hangdoc.diagnosis.causes.diverging import no_condition
from hangdoc.diagnosis.causes.finding import Finding, others_of
from hangdoc.diagnosis.causes.phrases import call_at, where_they_wait
from hangdoc.diagnosis.causes.registry import cause
from hangdoc.diagnosis.context import Case
from hangdoc.diagnosis.explanation import Blame, Diverged
from hangdoc.diagnosis.frames.names import names
from hangdoc.diagnosis.frames.stacks import same_place, user_stack
from hangdoc.diagnosis.source.queries import leads_to
from hangdoc.model.message import Does, sentence


@cause("HD702", explains=Diverged, order=200)
def shut_down_early(case: Case, blame: Blame[Diverged]) -> Finding | None:
    """HD702: the extra call is the last before destroy_process_group, where the others still communicate."""
    gap = blame.found.gap
    if gap is None or gap.kind != "delete" or gap.token.op == END or gap.mine is None or gap.theirs is None:
        return None
    if not _shuts_down(case, gap.mine) or _shuts_down(case, gap.theirs) or _is_on_the_way(gap.mine, gap.theirs):
        return None
    if any(same_place(gap.mine.frame, frame) for frame in user_stack(gap.theirs.stack) if gap.mine.frame):
        return None  # the others are below that very line, in what a library runs there
    culprits = blame.culprits
    return Finding(
        "HD702",
        sentence(
            [
                [Does(culprits, "shuts", "shut"), " down, in ", call_at(gap.mine)],
                " before destroy_process_group, while the others still communicate",
            ],
            where_they_wait(case, others_of(case, blame)),
        ),
        what_decided(case, blame) or no_condition(case, blame, gap),
        "let all ranks agree that it is over (all_reduce a flag) and reach the shutdown together",
    )


def _is_on_the_way(mine: Token, theirs: Token) -> bool:
    """True if the others' call is made below the very line that ``mine`` is: neither side is past it.

    Example: of `trainer.run(data)`, mine is the library's own call, theirs one of the user's step that it runs.
    """
    frame = mine.frame
    return frame is not None and any(same_place(frame, other) for other in user_stack(theirs.stack))


def _shuts_down(case: Case, token: Token) -> bool:
    frame = token.frame
    tree = case.sources.function(frame.file, frame.line) if frame is not None else None
    return (
        tree is not None
        and frame is not None
        and any(leads_to(tree, frame.line, name) for name in names("destroys_group"))
    )
