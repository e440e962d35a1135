"""Why it hangs, what to do, what was seen and not seen, and how sure hangdoc is: the lower rows of a report."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from typing import TYPE_CHECKING

from hangdoc.model.diagnosis import Branch, Diagnosis, Evidence
from hangdoc.model.kinds import Confidence
from hangdoc.model.snapshot import MODULES, NO_PROBE
from hangdoc.model.wording import name_ranks, ordinal
from hangdoc.report.behavior_rows import FileNames, label_ranks
from hangdoc.report.layout import Piece, Row

if TYPE_CHECKING:
    from hangdoc.model.snapshot import Unavailable

MAX_EVIDENCE = 4
MAX_UNAVAILABLE = 6
_MOST_SETS = 4
"""Most rows, or sets of ranks, of each kind: a report fits on one screen. Chosen by hand; the JSON document has all."""


def reason_rows(diagnosis: Diagnosis) -> Iterator[Row]:
    """Why, the condition and when it came out so, the fix and who else it could be."""
    if diagnosis.why:
        yield Row("why", (Piece(diagnosis.why),))
    yield from _branch(diagnosis)
    yield from _moment(diagnosis)
    yield from fix_row(diagnosis)
    if diagnosis.repair and diagnosis.repair.text:
        yield Row("repair", (Piece(diagnosis.repair.text),))
    yield from _alternatives(diagnosis)


def _moment(diagnosis: Diagnosis) -> Iterator[Row]:
    """'`loss > limit` was True the 412th time on rank 1 alone, and False there the 411 times before'; of a loop
    '`for batch in loader` ended on rank 1 alone, after 411 rounds'."""
    branch = diagnosis.divergence.branch if diagnosis.divergence else None
    if branch is None or branch.moment is None:
        return
    at = branch.moment
    condition = re.sub("^(el)?if |^while ", "", branch.condition.removesuffix(":"))
    whose = name_ranks(at.ranks) + (" alone" if at.alone else "")
    many = f"{at.before:,} rounds" if at.before > 1 else "1 round"
    if at.value == "ended":
        yield Row("when", (Piece(f"`{condition}` ended on {whose}, after {many}."),))
        return
    other = "False" if at.value == "True" else "True"
    times = f"the {at.before:,} times before" if at.before > 1 else "the time before"
    said = f"was {at.value} the {ordinal(at.before + 1)} time on {whose}, and {other} there {times}."
    yield Row("when", (Piece(f"`{condition}` {said}"),))


def fix_row(diagnosis: Diagnosis) -> Iterator[Row]:
    """The fix, unless all there is to do is to see the past: that is the report's last row."""
    if diagnosis.fix and diagnosis.fix.rstrip(".").casefold() != _to_see_the_past(diagnosis).casefold():
        yield Row("fix", (Piece(diagnosis.fix),))


def evidence_rows(diagnosis: Diagnosis, *, verbose: bool = False, more: str = "") -> Iterator[Row]:
    """What was seen, what could not be seen, how sure hangdoc is, and what would show more.

    Only what would change the reader's mind, unless ``verbose``; ``more``: how to see the rest.
    """
    yield from _evidence(diagnosis, verbose=verbose)
    yield from _unavailable(diagnosis.unavailable, verbose=verbose, known=_to_see_the_past(diagnosis))
    yield from confidence_row(diagnosis, more)
    yield from next_row(diagnosis)


def next_row(diagnosis: Diagnosis) -> Iterator[Row]:
    """'`hangdoc attach 4711 --inject` reads the ranks' earlier calls …', where these are what is missing."""
    past = _to_see_the_past(diagnosis)
    if past:
        yield Row("next", (Piece(f"{past[0].upper()}{past[1:]}."),))


def _to_see_the_past(diagnosis: Diagnosis) -> str:
    """What would show the ranks' earlier calls, by the remedy of most ranks; '' where some rank's calls were seen, or
    the verdict needs none."""
    without = [item for item in diagnosis.unavailable if item.what == "journal" and item.why == NO_PROBE]
    seen = {activity.rank for activity in diagnosis.ranks} - {item.rank for item in without} - set(diagnosis.unseen)
    if diagnosis.outcome != "hang" or diagnosis.confidence == "certain" or seen:
        return ""
    remedies = Counter(item.remedy for item in without if item.remedy)
    return remedies.most_common(1)[0][0] if remedies else ""


def folds(diagnosis: Diagnosis) -> bool:
    """True if only a verbose report has all facts."""
    told = len(_telling(diagnosis)[:MAX_EVIDENCE])
    return told < len(diagnosis.evidence) or len(_same_notes(diagnosis.unavailable)) > MAX_UNAVAILABLE


def _alternatives(diagnosis: Diagnosis) -> Iterator[Row]:
    """'It could also be rank 0 or rank 2: the data fits all of them.', or, of one that is likely, fits less well."""
    others = [ranks for ranks in diagnosis.alternatives if set(ranks) != set(diagnosis.culprits)]
    if not others:
        return
    if len(others) > _MOST_SETS and all(len(ranks) == 1 for ranks in others):
        sets = f"any of {name_ranks(rank for ranks in others for rank in ranks)}"
    else:
        mixed = len({len(ranks) > 1 for ranks in others}) > 1
        *most, last = (f"{name_ranks(r)}{' together' * (mixed and len(r) > 1)}" for r in others[:_MOST_SETS])
        sets = f"{', '.join(most)} or {last}" if most else last
    if not diagnosis.culprits:
        yield Row("suspect", (Piece(f"It may be {sets}; the data does not decide."),))
        return
    fits = f": the data fits {'both' if len(others) == 1 else 'all of them'}"
    if diagnosis.confidence != Confidence.POSSIBLE:
        fits = ", which fits less well" if len(others) == 1 else ", which fit less well"
    yield Row("or else", (Piece(f"It could also be {sets}{fits}."),))


def _telling(diagnosis: Diagnosis) -> list[Evidence]:
    """The evidence that decides; of a divergence, where each rank is now is in the rows above."""
    sides = diagnosis.divergence.sides if diagnosis.divergence is not None else ()
    return [item for item in diagnosis.evidence if item.decides and (item.kind != "stack" or not sides)]


def _evidence(diagnosis: Diagnosis, *, verbose: bool) -> Iterator[Row]:
    shown = diagnosis.evidence if verbose else _telling(diagnosis)[:MAX_EVIDENCE]
    for index, item in enumerate(shown):
        whose = f", {label_ranks(item.ranks)}" if item.ranks and "rank" not in item.text.lower() else ""
        yield Row("" if index else "seen", (Piece(f"{item.text}  ({item.kind}{whose})"),))


def _branch(diagnosis: Diagnosis) -> Iterator[Row]:
    """The condition and its values, where the sentences above did not name them."""
    branch = diagnosis.divergence.branch if diagnosis.divergence else None
    if branch is None:
        return
    label = "condition" if diagnosis.why else "why"
    place = f"{FileNames(diagnosis).short(branch.file)}:{branch.line}"
    if place not in diagnosis.why:
        yield Row(label, (Piece(f"`{branch.condition}` ({place})"),))
        label = ""
    values = _unnamed_values(branch, diagnosis.why, explained=place in diagnosis.why)
    if label == "condition" and all(len(each) == 1 for each in values.values()):
        label = "with"  # one side's value, or the same on both
    for name, each in values.items():
        yield Row(label, (Piece(f"{name} = {' | '.join(each)}"),))
        label = ""


def _unnamed_values(branch: Branch, why: str, *, explained: bool) -> dict[str, list[str]]:
    """Name → its values with their ranks, of the names that ``why`` gives no value of.

    Example: {'loss': ['0.5 (rank 1)', '0.7 (ranks 0, 2)']}. ``explained``: ``why`` says which way each side went.
    """
    found: dict[str, list[str]] = {}
    known: set[tuple[str, int]] = set()
    for item in sorted(branch.values, key=lambda item: item.seen == "inferred-from-path"):
        if known.issuperset((item.name, rank) for rank in item.ranks):
            continue  # inferred as well, and seen
        if item.seen == "inferred-from-path" and explained:
            continue
        known.update((item.name, rank) for rank in item.ranks)
        # A name that holds the rank itself says nothing.
        if f"{item.name} = " not in why and item.value != ",".join(map(str, item.ranks)):
            seen = {"now": "", "at-divergence": ", then"}.get(item.seen, ", inferred from the path taken")
            found.setdefault(item.name, []).append(f"{item.value} ({label_ranks(item.ranks)}{seen})")
    return found


def _same_notes(items: tuple[Unavailable, ...]) -> dict[tuple[str, str, str], list[int]]:
    """(what, why, remedy) → the ranks of which it is said."""
    found: dict[tuple[str, str, str], list[int]] = {}
    for item in items:
        ranks = found.setdefault((item.what, item.why, item.remedy), [])
        if item.rank is not None:
            ranks.append(item.rank)
    return found


def _unavailable(items: tuple[Unavailable, ...], *, verbose: bool, known: str) -> Iterator[Row]:
    """What could not be seen, and what would help, unless that is ``known`` already."""
    # Today's verdicts need no whole modules.
    notes = list(_same_notes(tuple(item for item in items if verbose or item.what != MODULES)).items())
    for index, ((what, why, remedy), ranks) in enumerate(notes if verbose else notes[:MAX_UNAVAILABLE]):
        whose = f" of {name_ranks(ranks)}" if ranks else ""
        text = f"{what}{whose}: {why}" + (f" → {remedy}" if remedy and remedy != known else "")
        yield Row("" if index else "not seen", (Piece(text, "yellow"),))


def confidence_row(diagnosis: Diagnosis, more: str = "") -> Iterator[Row]:
    """'certain: seen in …   ·   HD101 collective skipped on a rank   ·   hangdoc explain HD101'. ``more``: the last
    piece."""
    if diagnosis.outcome not in ("hang", "slow", "crashed"):
        return
    sure = diagnosis.confidence + (f": {diagnosis.sure}" if diagnosis.sure else "")
    pieces = [Piece(sure)]
    if diagnosis.cause:
        pieces.append(Piece(f"{diagnosis.cause.code} {diagnosis.cause.name}"))
        pieces.append(Piece(f"hangdoc explain {diagnosis.cause.code}"))
    if more:
        pieces.append(Piece(more))
    yield Row("sure?", tuple(pieces), separator="   ·   ")
