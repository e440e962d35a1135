"""Ranks poll for a file, or until one is gone, and who should have made or removed it is known by the source and by
what has run."""

from __future__ import annotations

from dataclasses import dataclass

from hangdoc.diagnosis.blame.how_sure import at_one_line
from hangdoc.diagnosis.condition.elsewhere.ran_alone import is_alike
from hangdoc.diagnosis.context import Case
from hangdoc.diagnosis.explanation import Blame, Explanation
from hangdoc.diagnosis.source.guards import CONDITIONS, guards
from hangdoc.diagnosis.source.handlers import swallowing
from hangdoc.diagnosis.source.polls import Ending, polls_for_file, what_ends_polling
from hangdoc.diagnosis.source.queries import calls_of
from hangdoc.diagnosis.source.settings import place_of
from hangdoc.diagnosis.source.sources import Sources
from hangdoc.diagnosis.source.syntax import holds
from hangdoc.model.kinds import ActivityKind, Confidence
from hangdoc.model.message import Condition
from hangdoc.model.process import Frame
from hangdoc.model.wording import ranks_text


@dataclass(frozen=True, slots=True)
class UnmadeFile(Explanation):
    """The ranks that wait poll for a file, or until it is gone; the culprits were to make or to remove it."""

    waiting: tuple[int, ...]
    made_at: Frame
    removes: bool = False
    test: Condition | None = None
    """What parts those who make it from those who wait for it."""
    own: bool = False
    """Each rank makes one, and the culprits have not made theirs."""


def file_that_all_await(case: Case) -> Blame[UnmadeFile] | None:
    """The blame of the ranks that alone have ever come to the line that makes, or removes, what all ranks poll for,
    else of those that alone have gone a way past it. None where the counters of lines do not tell.

    Examples: rank 0 alone has run the line `np.savez(path, rows)` → rank 0; rank 2 alone has been in the `except` suite
    of the `try` that calls rebuild(), which ends with `marker.unlink()` → rank 2.
    """
    everybody = tuple(sorted(case.activities))
    asleep = all(case.activities[rank].kind == ActivityKind.SLEEPING for rank in everybody)
    if len(everybody) < 2 or case.hidden or not asleep or not at_one_line(case, everybody):
        return None
    ending = what_ends_polling(case.sources, case.activities[everybody[0]].stack)
    if ending is None:
        return None
    if not all(_polls(case, rank) for rank in everybody):
        return _own_file(case, everybody, ending)
    never = case.table.split(everybody, ending.at.file, ending.at.line).never
    makers = tuple(rank for rank in everybody if rank not in never)
    if 0 < len(makers) < len(everybody) and ways_past(case.sources, ending.at):
        explained = UnmadeFile(everybody, ending.at, ending.removes)
        sure = f"no rank but {ranks_text(makers).partition(' ')[2]} has ever come to that line"
        return Blame(explained, makers, confidence=Confidence.LIKELY, sure=sure)
    return None


def _own_file(case: Case, everybody: tuple[int, ...], ending: Ending) -> Blame[UnmadeFile] | None:
    """The blame of the few ranks that have never come to the line at which each rank makes a file of its own, where all
    poll until those of all are there.

    Example: `while len(list(folder.glob("*.done"))) < world:`, and rank 3 alone has not run `mark.touch()` → rank 3.
    """
    ran, never, unknown = case.table.split(everybody, ending.at.file, ending.at.line)
    if not never or ending.removes or len(never) >= len(ran) or unknown:
        return None
    sure = f"{ranks_text(never)} alone {'has' if len(never) == 1 else 'have'} never come to that line"
    return Blame(UnmadeFile(everybody, ending.at, own=True), never, confidence=Confidence.LIKELY, sure=sure)


def _polls(case: Case, rank: int) -> bool:
    where = case.activities[rank].where
    asleep = case.activities[rank].kind == ActivityKind.SLEEPING
    return asleep and where is not None and polls_for_file(case.sources, where)


def ways_past(sources: Sources, at: Frame, test: Condition | None = None) -> list[Condition]:
    """What can lead past the line, in its function or where that is called: conditions other than ``test`` and those
    that go alike every time, and handlers of exceptions.

    Example: `try: ⏎ publish(table) ⏎ except ValueError as e: ⏎ log.error(e)`, and publish() has the line → the handler.
    """
    here = place_of(sources, at.file, at.line)
    inside = test is not None and here is not None and test.file == at.file and holds(here.function, test.line)
    calls = [Frame(file, line, "") for file, tree in sources.user_trees() for line in calls_of(tree, at.function)]
    found: dict[Condition, None] = {}
    for line in (at, *(() if inside else calls)):
        tree = sources.function(line.file, line.line)
        around = guards(tree, line.line) if tree is not None else []
        by_test = [g for g in around if g.kind in CONDITIONS and (not is_alike(g))]
        found |= dict.fromkeys(Condition(g.condition, line.file, g.line) for g in by_test)
        found |= dict.fromkeys(Condition(e.condition, line.file, e.line) for e in swallowing(sources, line))
    return [each for each in found if each != test]
