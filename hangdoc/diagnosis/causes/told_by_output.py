"""What the job itself wrote, as evidence of the condition that the ranks took differently."""

from __future__ import annotations

from dataclasses import replace

from hangdoc.diagnosis.causes.deciding import answers_at, decided_by
from hangdoc.diagnosis.causes.finding import Finding, others_of
from hangdoc.diagnosis.condition.elsewhere.set_before import is_of_a_part
from hangdoc.diagnosis.condition.elsewhere.written import WrittenUnder, written_under
from hangdoc.diagnosis.context import Case
from hangdoc.diagnosis.explanation import Blame, Explanation
from hangdoc.model.diagnosis import BranchAnswer, Divergence
from hangdoc.model.kinds import GONE
from hangdoc.model.message import Joined, Message, Ranks, Verb, conditions_in, joined
from hangdoc.model.process import Stack


def told_by_output(case: Case, blame: Blame[Explanation]) -> list[WrittenUnder]:
    """The conditions under which the culprits alone wrote something; where they wait for ranks that have ended, those
    of the ranks that have."""
    others = others_of(case, blame)
    if not case.job.written or not blame.culprits or not others:
        return []
    gap = blame.diverged.gap if blame.diverged is not None else None
    parted = [token.stack for token in (gap.mine, gap.theirs) if token is not None] if gap is not None else []
    found = written_under(case.sources, case.job.written, _stacks(case, blame.culprits, parted), blame.culprits, others)
    gone = tuple(rank for rank in case.activities if rank not in blame.culprits and case.activities[rank].kind in GONE)
    found = [each for each in found if not is_of_a_part(case.sources, each.condition)]
    if found or not gone:
        return found
    return written_under(case.sources, case.job.written, _stacks(case, gone, parted), gone, blame.culprits)


def _stacks(case: Case, ranks: tuple[int, ...], parted: list[Stack]) -> list[Stack]:
    """Where these ranks are, and where the sides have parted; nothing where the ranks were not seen."""
    if not any(case.activities[rank].stack for rank in ranks if rank in case.activities):
        return []
    return [*parted, *(case.activities[rank].stack for rank in ranks if rank in case.activities)]


def with_output(found: list[WrittenUnder], named: Finding) -> Finding:
    """The finding with the conditions that the output tells of and that its sentences do not cite."""
    news = _news(found, named)
    if not news:
        return named
    ranks = tuple(sorted({rank for each in news for rank in each.ranks}))
    times = max(each.times for each in news)
    who: Message = "by the output, one rank alone has" if times == 1 else f"by the output, {times} ranks at most have"
    if ranks:
        who = ["by what ", Verb(ranks, "it", "they"), " wrote, ", Ranks(ranks), " alone ", Verb(ranks, "has", "have")]
    been: list[Message] = []
    for how, taken in ((" been under ", True), (" been past ", False)):
        told = [each.condition for each in news if each.taken == taken]
        been += [[how, Joined(told, " and ")]] if told else []
    said: Message = [who, Joined(been, " and")]
    return replace(named, why=joined(named.why, said))


def _news(found: list[WrittenUnder], named: Finding) -> list[WrittenUnder]:
    cited = set(conditions_in(named.why))
    return [each for each in found if each.condition not in cited and each.condition != named.decided_at]


def unknown_writer(found: list[WrittenUnder], named: Finding) -> str:
    """What speaks against certainty: no line says which rank wrote what the finding is to tell of, and a line that one
    rank writes for all of them looks the same."""
    news = _news(found, named)
    return "the output does not say which rank wrote it" if news and not any(each.ranks for each in news) else ""


def with_written(case: Case, found: Divergence | None, told: list[WrittenUnder]) -> Divergence | None:
    """The divergence with these conditions, and what decides them, beside that of its branch."""
    if found is None or found.branch is None:
        return found
    branch = found.branch
    known = {(branch.file, branch.line), *((each.file, each.line) for each in branch.answers)}
    more: list[BranchAnswer] = []
    for each in told:
        at = each.condition
        more.append(BranchAnswer(each.function, at.file, at.line, at.source))
        more += decided_by(answers_at(case, at))
    more = [each for each in dict.fromkeys(more) if (each.file, each.line) not in known]
    return replace(found, branch=replace(branch, answers=(*branch.answers, *more)))


def doubted_by_output(found: Divergence | None, told: list[WrittenUnder]) -> str:
    """What speaks against certainty: the output tells of other conditions than the loop that is shown. What a condition
    around the call tests may well have been set under one of them."""
    branch = found.branch if found is not None else None
    if branch is None or not told or branch.kind != "loop":
        return ""
    known = {(branch.file, branch.line), *((each.file, each.line) for each in branch.answers)}
    shown = any((each.condition.file, each.condition.line) in known for each in told)
    return "" if shown else "what was written there points to another condition"
