"""HD6xx: network and device. All members are in the same call with equal arguments; no rank's code is to blame."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from itertools import combinations

from hangdoc.diagnosis.bounds import LISTED
from hangdoc.diagnosis.causes.finding import Finding
from hangdoc.diagnosis.causes.phrases import waiting_at, where_they_wait
from hangdoc.diagnosis.causes.registry import cause
from hangdoc.diagnosis.context import Case
from hangdoc.diagnosis.explanation import AllArrived, Blame, CutOff, HeldUpUnseen
from hangdoc.diagnosis.state.cuts import Cuts
from hangdoc.model.message import Message, sentence
from hangdoc.model.wording import name_all


@cause("HD601", explains=(AllArrived, HeldUpUnseen, CutOff), order=300)
def partition(case: Case, blame: Blame[AllArrived | HeldUpUnseen | CutOff]) -> Finding | None:
    """HD601: connections between some hosts retransmit and nothing gets through."""
    cut = case.cuts
    if not cut:
        return None
    count = len(cut.connections)
    connections = "1 connection retransmits" if count == 1 else f"{count} connections retransmit"
    addresses = _listed([f"{own} to {other}" for own, other in cut.addresses])
    hosts = _unreachable(cut)
    who = "the ranks that were seen wait" if case.hidden else "all ranks wait"
    in_calls: Message = [who, " ", waiting_at(case, tuple(sorted(case.seen)))]
    if isinstance(blame.found, CutOff):
        in_calls = where_they_wait(case, tuple(sorted(case.seen)))
    return Finding(
        "HD601",
        sentence(
            f"the network is cut: {hosts[0]}"
            if hosts
            else f"the network is cut: {connections} without an answer ({addresses})",
            *hosts[1:],
            in_calls,
        ),
        f"unsent data is in the send queues and is sent again and again between exactly these pairs: {addresses}",
        "check routes, firewalls and links between these hosts; the job goes on by itself if they come back in time",
    )


def _unreachable(cut: Cuts) -> list[str]:
    """Which hosts do not reach which, and what else is known: ['b cannot reach a and c', 'the connections between a and
    c are quiet']; [] where the sockets do not show which host is which."""
    pairs = cut.unanswered
    if not pairs:
        return []
    if len(pairs) == 1:
        ((one, other),) = pairs
        return [_of_a_pair(one, other, pairs[one, other]), *_reached_by_third(cut, one, other)]
    common = set.intersection(*map(set, pairs))
    if len(common) != 1:
        return [_listed([_of_a_pair(*pair, pairs[pair]) for pair in pairs])]
    (apart,) = common
    others = sorted({host for pair in pairs for host in pair} - common)
    if any(apart in senders for senders in pairs.values()):
        said = f"{apart} cannot reach {name_all(others)}"
    else:
        said = f"{name_all(others)} get no answer from {apart}"
    among = all(pair in cut.connected for pair in combinations(others, 2))
    return [said, f"the connections between {name_all(others)} are quiet"] if among else [said]


def _of_a_pair(one: str, other: str, senders: Collection[str]) -> str:
    if len(senders) == 2:
        return f"{one} and {other} cannot reach each other"
    (sender,) = senders
    return f"{sender} gets no answer from {other if sender == one else one}"


def _reached_by_third(cut: Cuts, one: str, other: str) -> list[str]:
    """The hosts that have connections with both, on which no data waits."""
    thirds = {host for pair in cut.connected for host in pair} - {one, other}
    both = [host for host in sorted(thirds) if all(tuple(sorted((host, end))) in cut.connected for end in (one, other))]
    return [f"the connections of {name_all(both)} with both are quiet"] if both else []


def _listed(pairs: Sequence[str]) -> str:
    more = f" and {len(pairs) - LISTED} more pairs" if len(pairs) > LISTED else ""
    return ", ".join(pairs[:LISTED]) + more


def _saw_sockets(case: Case) -> bool:
    read = any(host.connections or host.listening for host in case.job.hosts)
    return read and all(each.what != "sockets" for each in case.job.unavailable)


@cause("HD602", explains=AllArrived, order=310)
def all_arrived(case: Case, blame: Blame[AllArrived]) -> Finding | None:
    """HD602: everybody is there, and nothing moves."""
    if not case.programs:
        return None
    where = waiting_at(case, tuple(case.activities))
    return Finding(
        "HD602",
        sentence(["all ranks wait ", where, ", and the call does not complete"]),
        "every member has issued the call with equal arguments"
        + (", and the sockets of this machine are quiet" if _saw_sockets(case) else ""),
        "look at the devices, drivers and network cards (`nvidia-smi`, `dmesg`), and at the backend's own log "
        "(NCCL_DEBUG=INFO)",
    )
