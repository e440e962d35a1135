"""The lines that one side alone has run, and when the test that parted the ranks came out as it did.

Example: `loss < self.best` at train.py:55 was true on rank 1 the last time, and false the 411 times before; on
ranks 0 and 2 false all 412 times.
"""

from __future__ import annotations

from hangdoc.diagnosis.bounds import LISTED, NAMED
from hangdoc.diagnosis.causes.finding import others_of
from hangdoc.diagnosis.condition.elsewhere.ran_alone import ran_alone
from hangdoc.diagnosis.context import Case
from hangdoc.diagnosis.execution.caught import last_caught_alone
from hangdoc.diagnosis.execution.outcomes import RECORDER, Outcome, Place, who_counts
from hangdoc.diagnosis.execution.tested import expression_at
from hangdoc.diagnosis.explanation import Blame, Explanation
from hangdoc.diagnosis.source.guards import Guard
from hangdoc.model.branches import WORDS
from hangdoc.model.diagnosis import Divergence, Evidence
from hangdoc.model.message import Message, Ranks
from hangdoc.model.message import Place as At
from hangdoc.model.writing import Writer

_LONGEST = 80


def ran_evidence(
    case: Case, blame: Blame[Explanation], found: Divergence | None, writer: Writer
) -> tuple[Evidence, ...]:
    """The lines under the conditions of the divergence that one side alone has run."""
    branch = found.branch if found is not None else None
    sides = (blame.culprits, others_of(case, blame))
    if branch is None or not case.table or not all(sides):
        return ()
    told = {(branch.file, branch.line), *((each.file, each.line) for each in branch.answers)}
    lines = []
    for each in ran_alone(case, sides):
        if (each.file, each.guard.line) in told:
            mine, theirs = case.table.known(sides[each.side]), case.table.known(sides[1 - each.side])
            by = who_counts((p for r in (*mine, *theirs) if (p := case.ranks[r].process) is not None), each.file)
            never = case.table.split(theirs, each.file, each.line).never == theirs
            when = " and never on " if never else " and, since the first rounds, never on "
            ranks: Message = [" has run on ", Ranks(mine), when, Ranks(theirs), ", ", by]
            said = writer.write([At(each.file, each.line), ranks])
            lines.append(Evidence("process", mine, said))
    return tuple(lines[:NAMED])


def recorded_evidence(
    case: Case, blame: Blame[Explanation], found: Divergence | None, writer: Writer
) -> tuple[Evidence, ...]:
    """The tests on the line of the divergence's condition whose last value differs between the sides; the moment of
    that condition, where it is proved, has a row of its own."""
    branch = found.branch if found is not None else None
    mine, theirs = blame.culprits, others_of(case, blame)
    if branch is None or branch.kind == "loop" or not mine or not theirs:
        return ()
    outcomes = case.table.outcomes
    if not outcomes.recorded().keys() >= {*mine, *theirs}:
        return ()
    lines = []
    for place in outcomes.on_line((*mine, *theirs), branch.file, branch.line):
        known = {rank: outcome for rank in (*mine, *theirs) if (outcome := outcomes.of(rank, place)) is not None}
        text = expression_at(case.sources, place)
        if not 0 < len(text) <= _LONGEST or not all(
            each.source == RECORDER and each.whole and each.last for each in known.values()
        ):
            continue
        last = [{known[rank].last[-1] for rank in side} for side in (mine, theirs)]
        if all(len(each) == 1 for each in last) and last[0] != last[1]:
            said = _said(known, place, text, writer)
            lines.append(Evidence("process", tuple(mine), said, decides=branch.moment is None))
    return tuple(lines)


def caught_evidence(
    case: Case, blame: Blame[Explanation], found: Divergence | None, writer: Writer
) -> tuple[Evidence, ...]:
    """The exception that a handler caught on one side alone, where the divergence's condition is that handler or the
    `try` that it is of."""
    branch = found.branch if found is not None else None
    if branch is None or branch.kind != "try":
        return ()
    guard = Guard("try", branch.line, branch.condition, True, (), (branch.line, branch.line))
    processes = {rank: each.process for rank, each in case.ranks.items()}
    for ranks in (blame.culprits, others_of(case, blame)):
        caught = last_caught_alone(case.sources, processes, branch.file, guard, ranks) if ranks else None
        if caught is not None:
            alone, last = caught
            at = processes[alone[0]]
            line = at.branches[last.branch].line if at is not None else branch.line
            where: Message = [", raised at ", At(last.file, last.line, last.function)] if last.file else ""
            said: Message = [Ranks(alone), " alone caught a ", last.exception, " at ", At(branch.file, line)]
            return (Evidence("process", alone, writer.write([said, where, ", as the probe recorded"])),)
    return ()


def _said(known: dict[int, Outcome], place: Place, text: str, writer: Writer) -> str:
    alike: dict[str, list[int]] = {}
    for rank, outcome in known.items():
        alike.setdefault(_told(outcome), []).append(rank)
    parts: list[Message] = [f"`{text}` at ", At(place[0], place[1]), " was "]
    for number, (told, ranks) in enumerate(list(alike.items())[:LISTED]):
        parts += ["; " if number else "", told, " on ", Ranks(tuple(sorted(ranks)))]
    more = len(alike) - LISTED
    return writer.write([*parts, f"; and otherwise on {more} more" if more > 0 else "", ", as the probe recorded"])


def _told(outcome: Outcome) -> str:
    """'false all 412 times', 'true the last time, and false the 411 times before'."""
    value = outcome.last[-1]
    count, times = outcome.counts[value], outcome.times
    before = next((WORDS[other] for other, had in outcome.counts.items() if had and other != value), "")
    if times == 1:
        return f"{WORDS[value]}, the one time that it was asked,"
    if not before:
        return f"{WORDS[value]} all {times:,} times"
    if count == 1:
        return f"{WORDS[value]} the last time, and {before} the {times - 1:,} before,"
    return f"{WORDS[value]} the last time, and {count:,} of {times:,} times in all,"
