"""What a rule answers, and the words that all rules share."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from hangdoc.diagnosis.calls.alignment import Gap
from hangdoc.diagnosis.calls.history import END, Token
from hangdoc.diagnosis.condition.candidates import CONDITIONS, Parting, is_tried, telling_names, values_behind
from hangdoc.diagnosis.condition.choice import also_on_the_way
from hangdoc.diagnosis.condition.loop_counts import is_inside
from hangdoc.diagnosis.context import Case
from hangdoc.diagnosis.explanation import Blame, Explanation
from hangdoc.diagnosis.frames.landmarks import is_implicit, plain, words
from hangdoc.diagnosis.frames.naming import file_line
from hangdoc.diagnosis.frames.stacks import fork, same_line, user_stack
from hangdoc.diagnosis.source.guards import guards
from hangdoc.model.diagnosis import Activity
from hangdoc.model.kinds import COMMUNICATING, GONE
from hangdoc.model.process import Frame
from hangdoc.model.wording import name_ranks


@dataclass(frozen=True, slots=True)
class Finding:
    """A named cause. ``verdict`` is one sentence; ``why`` and ``fix`` speak of the user's own code; ``doubt`` says that
    something else would look the same."""

    code: str
    verdict: str
    why: str
    fix: str
    doubt: str = ""


def capital(sentence: str) -> str:
    """First letter in upper case, the rest untouched (frame names keep theirs)."""
    return sentence[:1].upper() + sentence[1:]


def place(frame: Frame | None) -> str:
    """'train.py:61 train()'; '' where no frame is known."""
    if frame is None:
        return ""
    function = plain(frame.function)
    return short(frame) + ("" if function.startswith("<") else f" {function}()")


def short(frame: Frame | None) -> str:
    """'train.py:61'; 'alpha/train.py:61' where there are two."""
    if frame is None:
        return ""
    return file_line(frame.file, frame.line)


def call_name(token: Token | None) -> str:
    """What a person calls it: 'barrier', or 'all_reduce (DDP gradient synchronisation)'."""
    if token is None:
        return "nothing"
    if token.op == END:
        return "the end of the program"
    mark = words(token.stack) if is_implicit(token.stack) else None
    if mark and token.op in mark:  # without a journal, a landmark is all that is known of the call
        return mark
    return f"{token.op} ({mark})" if mark else token.op


def telling(gap: Gap) -> tuple[Frame | None, Frame | None]:
    """The line to show for each side: the innermost user line, or, where both stand in the same helper, the first
    line on the way there that differs."""
    sides = [user_stack(t.stack) if t is not None else () for t in (gap.mine, gap.theirs)]
    a, b = (side[0] if side else None for side in sides)
    if a is None or b is None or (a.file, a.line) != (b.file, b.line):
        return a, b
    return fork(sides[0], sides[1], same=same_line).frames or (a, b)


def telling_token(gap: Gap) -> Frame | None:
    """The line to show for the call that is one too many, or missing."""
    mine, theirs = telling(gap)
    return mine if gap.token is gap.mine else theirs if gap.token is gap.theirs else gap.token.frame


def others_of(case: Case, blame: Blame[Explanation]) -> tuple[int, ...]:
    """The ranks that suffer: members of the group (or everybody) without the culprits, and without those that are gone
    and of whose calls nothing is known."""
    history = blame.diverged.alignment.history if blame.diverged else None
    members = history.members if history is not None else tuple(case.activities)
    apart = case.hidden | frozenset(blame.culprits)
    found = tuple(r for r in members if r not in apart)
    blind = set(history.blind) if history is not None else set()
    told = [r for r in found if r not in blind or case.activities[r].stack or case.activities[r].kind not in GONE]
    return tuple(told) or found


def verb(ranks: tuple[int, ...], one: str, many: str) -> str:
    """'waits' or 'wait'."""
    return one if len(ranks) == 1 else many


def waiting_at(case: Case, ranks: tuple[int, ...]) -> str:
    """Where those ranks wait now, in a few words: 'in backward() (train.py:61)'."""
    stuck = [case.activities[r] for r in ranks if r in case.activities]
    doing = [a for a in stuck if a.kind in COMMUNICATING] or stuck
    if not doing:
        return ""
    first = doing[0]
    what = first.landmark or first.op or first.text
    return f"in {what}" + (f" at {place(first.where)}" if first.where else "")


def doing(activity: Activity) -> str:
    """What a rank does, with its line."""
    where = f" at {place(activity.where)}" if activity.where else ""
    return f"{activity.text}{where}"


_MOST_PLACES = 2


def wait_sentence(case: Case, ranks: tuple[int, ...]) -> str:
    """'ranks 0, 1 and 3 wait in backward() at train.py:61 train()'; where they do different things, most of them
    first."""
    if not ranks:
        return ""
    by_place: dict[tuple[str, str], list[int]] = {}
    for rank in ranks if not case.hidden else (rank for rank in ranks if rank not in case.hidden):
        by_place.setdefault(_at_rest(case, rank), []).append(rank)
    places = sorted(by_place.items(), key=lambda item: -len(item[1]))
    more = sum(len(there) for _, there in places[_MOST_PLACES:])
    told = []
    for (kind, text), each in places[: _MOST_PLACES if more != 1 else None]:
        there = tuple(each)
        told.append(f"{name_ranks(there)} {verb(there, 'waits', 'wait') if kind else verb(there, 'is', 'are')} {text}")
    return "; ".join(told) + (f"; {more} more ranks are elsewhere" if more > 1 else "")


def _at_rest(case: Case, rank: int) -> tuple[str, str]:
    """Whether the rank waits for others ('' if not), and where it is, in words."""
    activity = case.activities[rank]
    if activity.kind in COMMUNICATING:
        return "waits", waiting_at(case, (rank,))
    if activity.where is None:
        return "", activity.text
    return "", f"at {place(activity.where)} ({activity.text})"


def condition_text(case: Case, blame: Blame[Explanation]) -> str:
    """The condition that the sides took differently, and its values; '' where none was found."""
    found = blame.diverged
    sides = (blame.culprits, others_of(case, blame))
    return partings_text(case, found.partings, sides, gap=found.gap, past=found.past) if found is not None else ""


def partings_text(
    case: Case,
    partings: Sequence[Parting],
    sides: tuple[tuple[int, ...], tuple[int, ...]],
    *,
    gap: Gap | None = None,
    past: bool = False,
) -> str:
    """'`if loss < best:` (train.py:41) was True on rank 1 and False on ranks 0 and 2'; ``sides[0]`` are the culprits.

    ``past``: the ranks have gone on since, so that values of now say nothing.
    """
    if not partings:
        return ""
    parting = partings[0]
    guard = parting.guard
    text = f"`{guard.condition}` ({_line_of(parting)})"
    here, there = sides[parting.guarded], sides[1 - parting.guarded]
    also = [f"`{p.guard.condition}` ({_line_of(p)})" for p in also_on_the_way(partings)]
    if also:
        text = (
            f"{' or '.join([text, *also])} decided otherwise on {name_ranks(sides[0])} than on {name_ranks(sides[1])}"
        )
    elif guard.kind in CONDITIONS and may_run_another(case, parting):
        text += f" was {guard.taken} on {name_ranks(here)}; {name_ranks(there)} may run another {parting.function}()"
    elif guard.kind in CONDITIONS and (loop := item_of(case, parting, gap)):
        text += (
            f" was {guard.taken} on {name_ranks(here)}, for an item of {loop}; {name_ranks(there)} decided otherwise, "
        )
        text += f"or {verb(there, 'has', 'have')} no such item"
    elif guard.kind in CONDITIONS:
        told = [(guard.taken, here), (not guard.taken, there)]
        if parting.guarded == 1:
            told.reverse()  # the culprits' side first
        text += " was " + " and ".join(f"{truth} on {name_ranks(ranks)}" for truth, ranks in told)
    elif guard.kind == "match":
        text += f" was taken on {name_ranks(here)} and not on {name_ranks(there)}"
    elif guard.kind == "loop":
        text += f" goes on on {name_ranks(here)} and has ended on {name_ranks(there)}"
    elif guard.kind == "try" and is_tried(parting):
        text = f"an exception may have led {name_ranks(there)} out of {text}"
    elif guard.kind == "try" and guard.taken and guard.condition != "finally:":
        text = f"{name_ranks(here)} {verb(here, 'is', 'are')} in {text}, after an exception"
    if guard.kind == "decorator" and parting.rank_like:
        text += f" lets {name_ranks(here)} alone run {parting.function}()"
    elif guard.kind == "decorator":
        text += (
            f" keeps results: {name_ranks(there)} may have had this one already, without running {parting.function}()"
        )
    for name in telling_names(case.sources, case.values, parting) if not past else ():
        per_rank = case.values.tested(case.sources, parting.file, parting.function, guard, name)
        if len(set(per_rank.values())) > 1:
            text += f" ({name} = {told_values(per_rank)})"
    for name, per_rank in values_behind(case.values, parting, sides).items() if not past else ():
        text += f" ({name} = {told_values(per_rank)})"
    return text


def may_run_another(case: Case, parting: Parting | None) -> bool:
    """Is the condition in a method that several classes have, into which the other side has perhaps never come?"""
    return parting is not None and parting.level > 0 and case.sources.methods(parting.function) > 1


def item_of(case: Case, parting: Parting | None, gap: Gap | None) -> str:
    """The loop whose items the condition tests, where the other side is not in it: it may have gone over others."""
    tree = case.sources.function(parting.file, parting.guard.line) if parting is not None else None
    if parting is None or gap is None or tree is None:
        return ""
    tested = {name.partition(".")[0] for name in parting.guard.names}
    loops = [g for g in guards(tree, parting.guard.line) if g.kind == "loop"]
    loop = next((g for g in reversed(loops) if tested & (set(g.counters) - set(g.rounds))), None)
    token = (gap.mine, gap.theirs)[1 - parting.guarded]
    if loop is None:
        return ""
    inside = token is not None and is_inside(token, replace(parting, guard=loop))
    return "" if inside else f"`{loop.condition}` ({file_line(parting.file, loop.line)})"


def _line_of(parting: Parting) -> str:
    return file_line(parting.file, parting.guard.line)


def told_values(per_rank: dict[int, str], separator: str = ", ") -> str:
    """'5 on rank 0, 4 on ranks 1 and 2': each value once, with the ranks that have it."""
    by_value: dict[str, list[int]] = {}
    for rank, value in sorted(per_rank.items()):
        by_value.setdefault(value, []).append(rank)
    return separator.join(f"{value} on {name_ranks(ranks)}" for value, ranks in by_value.items())
