"""Dumps of flight recorders: only calls are known, and of a rank whose dump is missing, nothing.

gloo's dumps do not even say who belongs to a group (torch 2.13): then the ranks that are here may not be all.

The outcome is a hang where a dump shows that PyTorch timed out, where no future call can repair what the ranks issued,
or where calls were pending for longer than a running job explains. Dumps of different moments of a running job tell
nothing.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from hangdoc.diagnosis.blame.exchanges import UnequalExchange
from hangdoc.diagnosis.calls.alignment import Gap
from hangdoc.diagnosis.calls.dump_times import Moment
from hangdoc.diagnosis.calls.exchanged import is_swapped
from hangdoc.diagnosis.calls.history import END, GroupHistory, Token, distinct
from hangdoc.diagnosis.calls.unlike_calls import unlike_calls_completed, unlike_calls_paired
from hangdoc.diagnosis.causes.finding import Finding
from hangdoc.diagnosis.causes.phrases import where_they_wait
from hangdoc.diagnosis.context import Case
from hangdoc.diagnosis.explanation import AllArrived, Blame, Explanation, HeldUpUnseen, Nothing
from hangdoc.diagnosis.frames.landmarks import is_distributed, plain
from hangdoc.diagnosis.frames.names import names
from hangdoc.diagnosis.messages.stray import UnequalSizes
from hangdoc.model.kinds import MESSAGES, ActivityKind, Confidence, Outcome
from hangdoc.model.message import Message, Ranks, Values, joined, sentence
from hangdoc.model.operations import message_way
from hangdoc.model.snapshot import DUMPS, Unavailable
from hangdoc.model.wording import name_duration

_FIX = "collect the dumps of all ranks (TORCH_FR_DUMP_TEMP_FILE names where each host writes its own) in one folder"


@dataclass(frozen=True, slots=True)
class Reading:
    """What the dumps of a folder come to. ``said``: what there is to say where no rank can be blamed."""

    outcome: Outcome
    found: Blame[Explanation]
    said: Finding | None = None


def read(case: Case, found: Blame[Explanation]) -> Reading:
    """The outcome of a job that only dumps show, and its blame no surer than they allow."""
    found = no_surer_than_its_group(case, found)
    moment = case.times.moment
    if moment is Moment.COMPLETE:
        unlike = next((said for history in case.histories if (said := _unlike(history)) is not None), None)
        if unlike is not None:
            return Reading(Outcome.HANG, found, unlike)
        # A rank at which nothing is under way may be the one that those wait for whose dumps are missing.
        outcome = Outcome.HEALTHY if _all_read(case) else Outcome.BLIND
        return Reading(outcome, found, _all_complete(case)) if case.programs else _blind(case, found)
    return _under_way(case, found)


def _unlike(history: GroupHistory) -> Finding | None:
    """A warning of calls that met and differ, though all of them completed; None where there are none."""
    calls = unlike_calls_completed(history)
    if not calls:
        return None
    number = next(iter(calls.values())).sequence
    several = len({call.op for call in calls.values()}) > 1
    given = {rank: call.op if several else _arguments(call) for rank, call in calls.items()}
    what = "calls" if several else next(iter(calls.values())).op
    verdict = sentence([f"calls that met differ: {what} #{number} of {history.label} is ", Values(given)])
    done = "they all completed, so no rank waited when the dumps were written; what they left is wrong on some rank"
    fix = "make the ranks agree on that call: NCCL does not compare what they give, and may as well wait for ever"
    return Finding("", verdict, done, fix)


def _arguments(call: Token) -> str:
    """'[4] Float'."""
    shapes = " ".join(f"[{', '.join(map(str, shape))}]" for shape in call.sizes or ())
    return f"{shapes} {' '.join(call.dtypes)}".strip()


def _under_way(case: Case, found: Blame[Explanation]) -> Reading:
    """The reading where calls were under way, or of different moments."""
    moment = case.times.moment
    clash = any(unlike_calls_paired(history) for history in case.histories) or _is_unequal_for_good(case, found)
    proved = clash or (found.proved and moment is Moment.FRESH and _for_good(case) and not _only_active(case))
    if moment in (Moment.APART, Moment.FRESH) and not proved:
        return Reading(Outcome.BLIND, found, _still_running(case))
    said = too_little(case, found)
    if said is not None:
        held_up = isinstance(found.found, (AllArrived, HeldUpUnseen)) and _have_waited(case)
        return Reading(Outcome.HANG if held_up or clash else Outcome.BLIND, found, said)
    if (case.streams or moment is not Moment.TIMED_OUT) and not clash and found.confidence == Confidence.CERTAIN:
        found = replace(found, confidence=Confidence.LIKELY)
    if moment is Moment.TIMELESS and case.streams and not clash:
        open_ = "for how long the calls were under way is not known"
        found = replace(found, sure=f"{found.sure}; {open_}" if found.sure else open_)
    return Reading(Outcome.HANG, found)


def _have_waited(case: Case) -> bool:
    """True if the ranks have waited for long; or if nothing shows for how long, and the dumps of most ranks are
    here: who gives a folder of dumps has a job that hung."""
    if case.times.moment is Moment.TIMELESS:
        return bool(case.streams) and len(case.programs) > len(case.hidden)
    return case.times.moment in (Moment.TIMED_OUT, Moment.STALLED)


def _is_unequal_for_good(case: Case, found: Blame[Explanation]) -> bool:
    """True if the sizes of an exchange do not add up, or if the two sides of a message differ in size, and neither has
    forgotten an earlier one that may be its partner."""
    if isinstance(found.found, UnequalExchange):
        return found.found.clashes
    if not isinstance(found.found, UnequalSizes):
        return False
    return all(case.programs[rank].journal.has_all_messages for rank in (found.found.sender, found.found.receiver))


def _only_active(case: Case) -> bool:
    """True if calls that are in no dump may have completed: nobody is then seen to wait for the rank that lacks one."""
    return any(program.journal.active_only for program in case.programs.values())


def _all_read(case: Case) -> bool:
    """True if the dumps of all ranks are here and were read. Where the dumps name the members of their groups, a file
    that is no rank's is none that is missing."""
    notes = [each for each in case.job.unavailable if each.what == "journal"]
    unread = any(each.rank is not None and each.rank not in case.programs for each in notes)
    named = bool(case.histories) and not any(history.open for history in case.histories)
    return not case.hidden and not unread and (named or not (notes or _only_active(case)))


def _for_good(case: Case) -> bool:
    """True if ranks wait for each other, whatever the moment. A device takes messages in an order of its own, so a
    circle with messages is none for sure, unless everything after them waits for them."""
    stuck = case.graph.stuck
    if not case.streams:
        return True
    return bool(stuck) and all(case.activities[r].kind not in MESSAGES or _holds_up_all_after(case, r) for r in stuck)


def _holds_up_all_after(case: Case, rank: int) -> bool:
    """True if the rank waits in one message, made by a call that waits for it, and its peer has not completed the
    other side: whatever either of them issues next comes after what it waits for.

    Example: `dist.send` waits for its message, `dist.isend` and a batch do not.
    """
    # Each branch is one of these conditions.
    front = case.streams.fronts.get(rank)
    if front is None or len(front.messages) != 1 or front.messages[0].batch:
        return False
    message, journal, peer = front.messages[0], case.programs[rank].journal, case.programs.get(front.messages[0].peer)
    if peer is None or not (journal.has_all_messages and peer.journal.has_all_messages):
        return False
    waits = names("waits_for_its_message")
    if not any(is_distributed(f) and plain(f.function) in waits for f in journal.stack(message.stack)):
        return False
    way = message_way(message.op)
    mine = [
        m for m in journal.point_to_points if (m.group, m.peer, message_way(m.op)) == (message.group, message.peer, way)
    ]
    other = [m for m in peer.journal.point_to_points if m.group == message.group and m.peer == rank and m.completed]
    return sum(message_way(m.op) != way for m in other) <= mine.index(message)


def _blind(case: Case, found: Blame[Explanation]) -> Reading:
    nothing = Finding("", "No call is recorded in these dumps.", "the recorders were off, or had kept no call", _FIX)
    return Reading(Outcome.BLIND, found, too_little(case, found) or nothing)


def _all_complete(case: Case) -> Finding:
    """Every call that the dumps show had completed, on all ranks alike."""
    here = tuple(sorted(case.programs))
    stand: Message = ["every call that ", Ranks(here), " had issued has completed"]
    missing = tuple(sorted(case.hidden))
    if _all_read(case):
        return Finding("", sentence(["no hang: ", stand]), "no rank waited when the dumps were written", "")
    gone: Message = [_dumps_of(missing), " missing"] if missing else "other dumps cannot be read"
    return Finding("", sentence(stand, gone), "what the missing ranks do decides", _FIX)


def _still_running(case: Case) -> Finding:
    """The dumps are of different moments of a job that runs, or of one at which its calls had just been issued."""
    times = case.times
    if times.ahead is not None:
        ahead, late = times.ahead
        told: Message = f"rank {ahead} has completed a call that rank {late} had not issued when its dump was written"
    else:
        longest = times.longest
        seconds = longest.seconds if longest is not None else 0.0
        told = f"no call had been under way for longer than {name_duration(max(1.0, seconds))}"
    apart = f", {name_duration(times.skew)} apart" if times.skew >= 1 else ""
    return Finding(
        "",
        sentence(f"these dumps may be of different moments of a running job{apart}", "so nothing shows that it hangs"),
        told,
        "write the dumps again when the job has not moved for a minute, or let PyTorch's watchdog write them "
        "(TORCH_NCCL_DUMP_ON_TIMEOUT=1)",
    )


def not_shown(case: Case, outcome: Outcome) -> tuple[Unavailable, ...]:
    """What could not be seen; of what the dumps leave out, and better ones would show, one note."""
    notes = case.job.unavailable
    gaps = [note for note in notes if note.what == DUMPS]
    if case.times.moment is Moment.TIMELESS and outcome == Outcome.HANG:
        waited = "nothing shows for how long the calls were under way"
        gaps.insert(0, Unavailable(DUMPS, waited, "copy the files with their times (`cp -p`, `scp -p`, `rsync -t`)"))
        if case.streams.fronts and not case.streams.timed:
            gaps.append(Unavailable(DUMPS, "none shows when kernels began", "set TORCH_NCCL_ENABLE_TIMING=1"))
    if not gaps:
        return notes
    one = Unavailable(DUMPS, "; ".join(gap.why for gap in gaps), "; ".join(gap.remedy for gap in gaps))
    return (one, *(note for note in notes if note.what != DUMPS))


def end_of_wait(case: Case) -> str:
    """'PyTorch timed out after 600 s.', as a sentence behind the verdict; '' where no dump says so."""
    first = case.times.first_out
    if first is None:
        return ""
    return f"PyTorch timed out after {round(first.timeout or first.seconds)} s, first on rank {first.rank}."


def _dumps_of(ranks: tuple[int, ...]) -> Message:
    return [Ranks(ranks), "'s dump is"] if len(ranks) == 1 else ["the dumps of ", Ranks(ranks), " are"]


def no_surer_than_its_group(case: Case, found: Blame[Explanation]) -> Blame[Explanation]:
    """The blame, at most "likely" where the dumps do not say who else is in the group, as more ranks may do as the
    culprits do, where two threads of a rank share a group on a device, or where calls that completed were left out."""
    history = found.diverged.alignment.history if found.diverged is not None else None
    if history is None or found.confidence != Confidence.CERTAIN:
        return found
    gap = found.diverged.gap if found.diverged is not None else None
    if case.streams and _may_have_threads(case, history, gap):
        more = "several threads may call on the group, in an order that nothing fixes"
    elif history.open:
        more = "the dumps do not say who else is in the group"
    elif lacks_the_past(case, history):
        more = "these dumps do not show the calls that completed before"
    else:
        return found
    return replace(found, confidence=Confidence.LIKELY, sure=f"{found.sure}; {more}" if found.sure else more)


def lacks_the_past(case: Case, history: GroupHistory) -> bool:
    """True if a member's dump leaves out what completed, or no completed call of a device's group is left: then what
    the ranks have always done there is not known, live or not."""
    if any(case.programs[r].journal.active_only for r in history.members if r in case.programs):
        return True
    return bool(case.streams) and not any(t.op != END and not t.pending for t in _calls_of(history))


def _may_have_threads(case: Case, history: GroupHistory, gap: Gap | None) -> bool:
    """True if several threads of a rank call on the group, or if calls changed places and no dump names threads."""
    if any(program.threads(history.key[0]) > 1 for program, _ in distinct(case.programs)):
        return True
    if gap is None or gap.mine is None or gap.mine.thread_id:
        return False
    return is_swapped(case.programs, gap.mine, gap.theirs)


def _calls_of(history: GroupHistory) -> Iterator[Token]:
    """All calls of the group that were seen."""
    return (token for tokens in {id(t): t for t in history.tokens.values()}.values() for token in tokens)


def too_little(case: Case, found: Blame[Explanation]) -> Finding | None:
    """What there is to say where the dumps that are here do not tell why the job stands; None where they do."""
    # One function in spite of its branches: the first reason that fits is given.
    missing = case.hidden
    unsure = isinstance(found.found, AllArrived) and (missing or any(h.open for h in case.histories))
    if not (isinstance(found.found, (HeldUpUnseen, Nothing)) or unsure):
        return None
    here = sorted(case.programs)
    waiting = tuple(rank for rank in here if case.activities[rank].kind == ActivityKind.IN_COLLECTIVE)
    stand = sentence(where_they_wait(case, waiting) if waiting else "no call in these dumps was under way")
    why = "" if waiting else "every call that they show had completed"
    if missing:
        return Finding("", joined(stand, _missing(case), between=" "), why or "what the missing ranks do decides", _FIX)
    if waiting:
        are = "is" if len(here) == 1 else "are"
        dumps = f"1 dump {are} here, and it does" if len(here) == 1 else f"{len(here)} dumps {are} here, and they do"
        open_ = sentence(f"the reason is open: {dumps} not say how many ranks the job has", "collect the rest")
        return Finding("", joined(stand, open_, between=" "), "gloo's dumps do not name the members of a group", _FIX)
    remedy = "attach to the job, or run it under `hangdoc watch`"
    return Finding("", joined(stand, "The reason for the stall is open.", between=" "), why, remedy)


def _missing(case: Case) -> Message:
    """'Rank 2's dump is missing, so the reason is open: 3 of 4 dumps are here; collect the rest.'"""
    missing, here = case.hidden, len(case.programs)
    gone = Ranks.of(missing)
    whose: Message = [gone, "'s dump is"] if len(missing) == 1 else ["the dumps of ", gone, " are"]
    counted = f"{here} of {len(case.ranks)} dumps {'is' if here == 1 else 'are'} here"
    return sentence([whose, f" missing, so the reason is open: {counted}"], "collect the rest")
