"""HD303: process groups that some ranks make and others do not, or make otherwise."""

from __future__ import annotations

from hangdoc.diagnosis.blame.group_creation import LOCAL
from hangdoc.diagnosis.blame.shared_number import SHARED
from hangdoc.diagnosis.calls.history import Token
from hangdoc.diagnosis.causes.deciding import what_decided
from hangdoc.diagnosis.causes.finding import Finding, others_of, telling
from hangdoc.diagnosis.causes.looked_up import looked_up_on_one_side
from hangdoc.diagnosis.causes.phrases import at, doing
from hangdoc.diagnosis.causes.registry import cause
from hangdoc.diagnosis.context import Case
from hangdoc.diagnosis.explanation import Blame, Diverged
from hangdoc.diagnosis.frames.landmarks import Role, below_user, has_role, is_implicit, plain
from hangdoc.diagnosis.frames.names import names
from hangdoc.model.message import Does, Joined, Message, Ranks, joined, sentence
from hangdoc.model.process import Frame

_OF_ALL = "new_group is a collective of all ranks of the job, also of those that will not be members"


_CALL_IT_ON_ALL = "call new_group on every rank, in the same order, and use the group only on its members"


def _makes_groups(frame: Frame) -> bool:
    return plain(frame.function) in names("makes_group")


@cause("HD303", explains=Diverged, order=70)
def new_group_not_by_all(case: Case, blame: Blame[Diverged]) -> Finding | None:
    """HD303: new_group called by some ranks only, or a different number of times."""
    gap = blame.found.gap
    if gap is None or not (gap.token.op == "new_group" or any(_makes_groups(f) for f in gap.token.stack)):
        return None
    if is_implicit(gap.token.stack) and not has_role(gap.token.stack, Role.GROUPS):
        return None  # who wrote that line asked for no group
    culprits, others = blame.culprits, others_of(case, blame)
    if gap.kind == "delete" and gap.mine and gap.theirs and gap.mine.op == gap.theirs.op == "new_group":
        here, there = telling(gap)
        # Of a group that a rank is no member of, its journal says nothing.
        history = blame.found.alignment.history
        seen = tuple(r for r in others if history.at(r, gap.token.sequence) is not None)
        return _unlike_groups(case, blame, [(gap.mine, here, culprits), (gap.theirs, there, seen or others)])
    if gap.token.group[0] == SHARED:
        return _under_one_number(case, blame, gap.token)
    callers, missing = (culprits, others) if gap.kind == "delete" else (others, culprits)
    if gap.kind == "insert" and gap.mine is not None and gap.mine.site == gap.token.site and gap.token.sizes:
        return _left_out(case, gap.mine, gap.token, callers, missing)
    return _made_by_some(case, blame, gap.token, callers, missing)


def _under_one_number(case: Case, blame: Blame[Diverged], token: Token) -> Finding:
    """HD303 of two groups with one number, of different members."""
    other = blame.alternatives[0]
    taken: Message = [
        ["on ", Ranks(other), " the same number belongs to a group of ", Ranks(other), ": "],
        "the two share their keys in the store, and find the wrong partners there",
    ]
    return Finding(
        "HD303",
        sentence(
            [
                ["only ", Does(blame.culprits, "has", "have"), " made the process group of ", Ranks(blame.culprits)],
                at(token.frame),
            ],
            "its first call does not complete, though all its members are in it",
        ),
        joined(what_decided(case, blame), _OF_ALL, taken),
        _CALL_IT_ON_ALL,
    )


def _maker(token: Token) -> str:
    """What the user's line calls to make a group: 'new_group', or a function that makes several."""
    below = below_user(token.stack)
    made = has_role(token.stack, Role.GROUPS) and not any(_makes_groups(frame) for frame in below[-2:])
    return plain(below[-1].function) if made and len(below) < len(token.stack) else "new_group"


def _made_by_some(
    case: Case, blame: Blame[Diverged], token: Token, callers: tuple[int, ...], missing: tuple[int, ...]
) -> Finding:
    """HD303 of ``callers`` that make a group in ``token``, and ``missing`` that are elsewhere."""
    frame, maker = token.frame, _maker(token)
    decided = what_decided(case, blame)
    where = None
    mine = blame.found.gap.mine if blame.found.gap is not None and not decided else None
    sides = (mine.stack if mine is not None else (), token.stack)
    looked_up = looked_up_on_one_side(case.sources, sides, (missing, callers))
    if looked_up is not None:
        where, decided = looked_up[1], joined(looked_up[0], _OF_ALL)
    return Finding(
        "HD303",
        sentence(
            ["only ", Does(callers, "calls", "call"), f" {maker}", at(frame)]
            if frame is not None
            else [Does(callers, "has", "have"), " made a process group that ", Ranks(missing), " did not make"],
            [Does(missing, "is", "are"), " in ", doing(case.activities[missing[0]])] if missing else "",
        ),
        decided or _OF_ALL if maker == "new_group" else joined(f"{maker} makes process groups, and {_OF_ALL}", decided),
        _CALL_IT_ON_ALL
        if maker == "new_group"
        else ["call ", maker, at(frame), " on every rank of the job, with the same arguments"],
        "" if looked_up is None else "what it looked up on the others was not seen",
        decided_at=where,
    )


def _left_out(
    case: Case, mine: Token, token: Token, callers: tuple[int, ...], missing: tuple[int, ...]
) -> Finding | None:
    """HD303 of a line that makes several groups: ``missing`` left out the one that ``callers`` made in ``token``, and
    make the next one, in ``mine``.

    Example: `if members not in known and rank in members: ⏎ known[members] = new_group(members)`.
    """
    made = token.sizes[0] if token.sizes else ()
    now: Message = [Does(missing, "is", "are"), " in ", doing(case.activities[missing[0]])] if missing else ""
    next_one = mine.sizes[0] if mine.sizes else ()
    return Finding(
        "HD303",
        sentence(
            [["only ", Does(callers, "has", "have"), " made the process group of ", Ranks(made)], at(token.frame)],
            [now, [", for the group of ", Ranks(next_one)] if next_one and mine.pending else ""] if now else "",
        ),
        _OF_ALL,
        _CALL_IT_ON_ALL,
    )


_SAME_GROUPS = "new_group is a collective of all ranks of the job: all have to make the same groups in the same order"

_BY_MEMBERS = (
    "with `use_local_synchronization=True`, torch names a group after its members and the number of groups that the "
    "rank has made before, so its members wait for each other under different names"
)


_SAME_NUMBER = (
    "let all members of a group make equally many groups before it, or leave `use_local_synchronization` out and call "
    "new_group on every rank, in the same order"
)


def _is_by_members(blame: Blame[Diverged]) -> bool:
    gap = blame.found.gap
    return gap is not None and gap.token.group[0] == LOCAL


def _unlike_groups(
    case: Case, blame: Blame[Diverged], making: list[tuple[Token, Frame | None, tuple[int, ...]]]
) -> Finding:
    """HD303 of two sides that are both in new_group, and make different groups. ``making``: of each side its call, the
    line to show and its ranks."""
    groups: list[Message] = [
        [
            [Does(ranks, "makes", "make"), " a process group"],
            [" of ", Ranks(token.sizes[0])] if token.sizes and token.sizes[0] else "",
            at(frame),
        ]
        for token, frame, ranks in making
    ]
    if _is_by_members(blame):
        (_, frame, more), (_, _, less) = making
        return Finding(
            "HD303",
            sentence([Ranks(more), " made a process group that ", Ranks(less), " did not make", at(frame)]),
            joined(what_decided(case, blame), _BY_MEMBERS),
            _SAME_NUMBER,
        )
    unlike = len({token.sizes for token, _, _ in making}) > 1
    decided = what_decided(case, blame)
    lines = {(frame.file, frame.line): frame for _, frame, _ in making if frame is not None}
    return Finding(
        "HD303",
        sentence(Joined(groups, " where "), "the groups are not the same"),
        decided or _SAME_GROUPS,
        "give new_group the same list of ranks on every rank, and make the groups in the same order"
        if unlike and len(lines) == 1
        else _CALL_IT_ON_ALL,
    )
