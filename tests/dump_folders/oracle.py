"""What can be known from a folder, and how an answer is marked.

The truth is not what was done to the job but what the dumps let anyone know of it: with a rank's dump lost, with two
ranks to compare, with no start recorded and with times that say nothing, less than that.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from dump_folders.faults import GONE, LATE, Damage, Ranks
from dump_folders.simulator import Call, Machine, Seen
from dump_folders.write import Dumping, newer, recorded_name, timed_out, visible

SURENESS = ("possible", "likely", "certain")
_CLAIMS = {"hang", "crashed"}
_ENOUGH = 6
"""So many messages of a rank show what it does in each round."""
_PENDING = {"late", "crash", "unseen", "ended_for_good", "kernel_stuck", "gpu_stuck", "root"}


@dataclass
class Truth:
    """What an honest and able reader may say."""

    fault: str
    outcomes: frozenset[str]
    culprits: tuple[Ranks, ...] = (frozenset(),)
    """Any one of these."""
    causes: frozenset[str | None] = frozenset({None})
    guesses: frozenset[str] = frozenset()
    """Codes that may be said too, but not for certain."""
    most_sure: str = "certain"
    line: tuple[str, int] | None = None
    why: str = ""
    """For people who read a failure."""


@dataclass
class Mark:
    """One answer, compared with the truth."""

    outcome: bool
    ranks: bool
    cause: bool
    certain_and_false: bool
    too_sure: bool
    line: bool | None = None
    """Does the verdict name the statement's line? None: the dumps do not show it."""
    refused: bool = False
    said: str = ""

    @property
    def right(self) -> bool:
        return self.outcome and self.ranks and self.cause and not self.certain_and_false


def truth(damage: Damage, machine: Machine, dumping: Dumping, *, running: bool) -> Truth:
    """What the dumps let anyone know."""
    if damage.kind == "nothing":
        return _healthy(machine, dumping, running=running)
    seen = {rank: visible(machine, dumping, rank) for rank in dumping.moments if rank not in dumping.spoiled}
    clash = _clash(seen, dumping)
    proven = clash is not None and damage.kind not in _PENDING
    culprits, causes, most = _who(damage, dumping, seen)
    outcomes = {"hang"}
    why = ["calls clash" if clash else "no two calls clash"]
    if damage.gone and damage.kind in {"crash", "unseen"}:
        outcomes.add("crashed")
    if not proven:
        dated = not dumping.copied or (dumping.timing and _any(seen, "started"))
        if not dumping.watchdog:
            most = _lower(most, "likely")
            why.append("dumped by hand")
        given_up = dumping.retired_at_timeout and any(
            timed_out(each, dumping.moments[rank], dumping.timeout)
            for rank, entries in seen.items()
            for each in entries
        )
        if not dated and not given_up:
            # Nothing says how long the calls have been pending: a running job looks the same.
            outcomes.add("blind")
            most = _lower(most, "likely")
            why.append("the files' times are a copy's")
        if dumping.only_active:
            most = _lower(most, "likely")
    if dumping.only_active and not any(seen.values()):
        outcomes |= {"blind", "healthy"}
    sizes = clash is not None and len({recorded_name(call.op, dumping.schema) for call in clash}) == 1
    guesses = frozenset({"HD104"}) if sizes and not _frames(dumping) else frozenset()
    line = _line(damage, dumping, seen)
    return Truth(damage.kind, frozenset(outcomes), culprits, causes, guesses, most, line, "; ".join(why))


def _healthy(machine: Machine, dumping: Dumping, *, running: bool) -> Truth:
    seen = {rank: visible(machine, dumping, rank) for rank in dumping.moments if rank not in dumping.spoiled}
    if not running:
        some = len(seen) < len(machine.cpus) or dumping.only_active
        outcomes = {"healthy", "blind"} if some else {"healthy"}
        return Truth("healthy", frozenset(outcomes), why="all is complete")
    pending = any(each.completed is None and each.entry.kernel for entries in seen.values() for each in entries)
    ends: dict[str, set[int]] = {}
    for rank, entries in seen.items():
        for name in {each.entry.group.name for each in entries}:
            last = max(each.entry.collective_seq for each in entries if each.entry.group.name == name)
            ends.setdefault(name, set()).add(last if rank in dumping.moments else 0)
    apart = any(len(last) > 1 for last in ends.values())
    outcomes = {"blind"} if pending or apart else {"blind", "healthy"}
    return Truth("running", frozenset(outcomes), most_sure="certain", why="dumped while it ran")


def _line(damage: Damage, dumping: Dumping, seen: dict[int, list[Seen]]) -> tuple[str, int] | None:
    """The line of the statement, where a dump has it."""
    if not _frames(dumping) or damage.line is None or damage.kind in {"crash", "unseen"}:
        return None
    shown = (each.entry.call.frames for entries in seen.values() for each in entries)
    return damage.line if any(damage.line in {frame[:2] for frame in frames} for frames in shown) else None


def _any(seen: dict[int, list[Seen]], state: str) -> bool:
    return any(each.state == state for entries in seen.values() for each in entries)


def _frames(dumping: Dumping) -> bool:
    return dumping.frames and not dumping.as_json


def _lower(one: str, other: str) -> str:
    return min(one, other, key=SURENESS.index)


def _clash(seen: dict[int, list[Seen]], dumping: Dumping) -> tuple[Call, Call] | None:
    """Two different calls at one place of a communicator, so that no future can repair it."""
    met: dict[tuple[str, int], Call] = {}
    for entries in seen.values():
        for each in entries:
            call, kernel = each.entry.call, each.entry.kernel
            if kernel is None or call.is_p2p:
                continue
            first = met.setdefault((each.entry.group.name, kernel.number), call)
            if first.uneven and call.uneven and first.op == call.op:
                continue  # its members give different sizes, rightly
            if _recorded(first, dumping) != _recorded(call, dumping):
                return first, call
    return None


def _recorded(call: Call, dumping: Dumping) -> tuple[object, ...]:
    """What the schema keeps of a call."""
    inputs = tuple((part.inputs, part.dtype) for part in call.parts or (call,))
    dtypes = newer(dumping.schema, "2.2")
    return (recorded_name(call.op, dumping.schema), tuple(each if dtypes else each[0] for each in inputs))


def _who(
    damage: Damage, dumping: Dumping, seen: dict[int, list[Seen]]
) -> tuple[tuple[Ranks, ...], frozenset[str | None], str]:
    kind, causes = damage.kind, damage.causes
    if kind in {"crash", "unseen"}:
        return (frozenset(), damage.culprits), causes, "likely"
    if kind == "dtype" and not newer(dumping.schema, "2.2"):
        # The recorder does not keep types: all arrived, as far as anyone can see.
        either = (frozenset(), damage.culprits)
        return either, causes | {"HD602", None}, "likely" if dumping.timing else "possible"
    if kind == "root":
        return (frozenset(),), causes, "likely" if dumping.timing else "possible"
    if kind == "kernel_stuck":
        # All arrived. Without starts it is as possible that one rank's GPU never came to it.
        if dumping.timing:
            # Roots that differ look the same, and so do types where they are not kept.
            known = newer(dumping.schema, "2.2") and not damage.rooted
            return (frozenset(),), causes, "certain" if known else "likely"
        return (frozenset(),), causes | {None}, "possible"
    if kind == "gpu_stuck":
        (rank,) = damage.culprits
        if not _waits(seen[rank]):  # its launch queue was full: it has not even issued the call
            return (damage.culprits,), causes | LATE, "certain"
        if dumping.timing:
            return (damage.culprits,), causes, "certain"
        return (frozenset(), damage.culprits), causes, "possible"
    if kind == "all_send_first":
        return (damage.culprits, frozenset()), causes, "certain"
    if kind == "two":
        return (damage.culprits,), causes, "certain"
    if kind == "fewer_rounds":
        return _replica(damage, dumping, seen)
    (rank,) = damage.culprits
    late = kind in {"late", "ended_for_good"}
    accepted: list[Ranks] = [damage.culprits]
    most = "certain"
    unseen = damage.gone & set(damage.group.members if damage.group else ())
    if not late and unseen and not set(seen) & set(damage.group.members if damage.group else ()) - {rank}:
        # The only ones that it parts from left no dump: they may as well be gone.
        accepted += [frozenset(), unseen]
        return tuple(accepted), causes | GONE | LATE, "likely"
    if not late:
        rivals = _rivals(damage, seen, rank, only_active=dumping.only_active)
        accepted += [frozenset({rival}) for rival in rivals]
        most = "likely" if rivals else most
        if not _waits(seen.get(rank, [])):
            causes = causes | LATE | {"HD102"}
        if damage.second and not _both_seen(seen, damage, rank):
            causes = causes | {"HD101", "HD109", "HD106"}
        if kind == "threads":
            accepted.append(frozenset())  # it is a race: none of them has to behave otherwise
            causes = causes if newer(dumping.schema, "2.9") else causes | {"HD106"}
    elif damage.gone:
        most = "likely"  # the rank whose dump is lost may be late as well
    return tuple(accepted), causes, most


def _replica(
    damage: Damage, dumping: Dumping, seen: dict[int, list[Seen]]
) -> tuple[tuple[Ranks, ...], frozenset[str | None], str]:
    """Of two replicas, either may be the one that differs, unless its own rounds before can be seen."""
    every = frozenset(seen)
    others = every - damage.culprits
    before = {e.entry.call.iteration for r in damage.culprits & every for e in seen[r]} - {damage.iteration, -1}
    two = len(others) == len(damage.culprits)
    open_ = two and (len(before) < 2 or dumping.only_active)
    guesses = {"HD107"} if dumping.only_active else set()
    accepted = (damage.culprits, others) if open_ else (damage.culprits,)
    return accepted, damage.causes | guesses, "likely" if two or dumping.only_active else "certain"


def _both_seen(seen: dict[int, list[Seen]], damage: Damage, rank: int) -> bool:
    """Do the dumps of the culprit and of another rank show both calls? Else one of them may be missing."""
    both = {damage.site, damage.second}
    shown = {
        r: {e.entry.call.site for e in entries if e.entry.call.iteration == damage.iteration}
        for r, entries in seen.items()
    }
    return both <= shown.get(rank, set()) and any(both <= sites for r, sites in shown.items() if r != rank)


def _waits(entries: list[Seen]) -> bool:
    """Has the rank issued a call that never ended? If not, it only looks late."""
    return any(each.completed is None and each.entry.kernel for each in entries)


def _rivals(damage: Damage, seen: dict[int, list[Seen]], rank: int, *, only_active: bool) -> set[int]:
    """Who else may be the culprit: the other of two ranks, where no third shows what is right."""
    others = set(seen) - {rank}
    if damage.peers:
        told = [r for r, entries in seen.items() if sum(each.entry.is_p2p for each in entries) > _ENOUGH]
        return set(damage.peers) & others if len(told) < 3 or only_active or damage.kind == "extra_recv" else set()
    group = set(damage.group.members if damage.group else ()) & others
    if damage.kind in {"extra", "silent_extra", "ended_early", "one_more"}:
        witnesses = others  # all others show that there is no such call
    else:
        witnesses = {other for other in others if any(each.entry.call.site == damage.site for each in seen[other])}
    return set() if len(witnesses) > 1 else group or others


def mark(truth: Truth, answer: dict[str, Any] | None) -> Mark:
    """Compare a diagnosis document with the truth; None: there was none."""
    if answer is None:
        return Mark(False, False, False, False, False, False if truth.line else None, refused=True, said="refused")
    outcome, culprits = str(answer["outcome"]), frozenset(answer["culprits"])
    cause = (answer.get("cause") or {}).get("code")
    confidence = str(answer.get("confidence", "possible"))
    claims = outcome in _CLAIMS
    right_outcome = outcome in truth.outcomes
    if right_outcome and not claims:
        right_ranks, right_cause = not culprits, cause is None
    else:
        guessed = cause in truth.guesses and confidence != "certain"
        right_ranks, right_cause = culprits in truth.culprits, cause in truth.causes or guessed
    untrue = not right_outcome or not (right_ranks or any(culprits and culprits < each for each in truth.culprits))
    false = (claims or outcome == "healthy") and confidence == "certain" and (untrue or bool(cause and not right_cause))
    barred = claims and confidence == "certain" and truth.most_sure != "certain"
    too_sure = claims and SURENESS.index(confidence) > SURENESS.index(truth.most_sure)
    said = f"{outcome} {sorted(culprits)} {cause or '-'} {confidence}"
    line = None
    if truth.line is not None:
        line = f"{truth.line[0].rsplit('/', 1)[-1]}:{truth.line[1]}" in str(answer.get("verdict", ""))
    return Mark(right_outcome, right_ranks, right_cause, false or barred, too_sure, line, said=said)
