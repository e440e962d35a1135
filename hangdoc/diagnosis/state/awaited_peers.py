"""Whom ranks wait for in messages, by what their frames hold, where no journal tells.

``work.wait()`` shows no peer. The messages of a batch that lie in a frame do, and so do the calls of isend and irecv in
the function that waits, with the values of its frame: a rank waits for one of them, and those that several ranks wait
in have a peer in common where one rank left its part out.
"""

from __future__ import annotations

import ast
from collections.abc import Hashable, Mapping
from dataclasses import replace

from hangdoc.diagnosis.frames.stacks import fork, user_stack
from hangdoc.diagnosis.source.evaluate import value_of
from hangdoc.diagnosis.source.guards import guards, loops_around
from hangdoc.diagnosis.source.items import items_of_ended_loops
from hangdoc.diagnosis.source.message_calls import message_calls
from hangdoc.diagnosis.source.sources import Sources
from hangdoc.diagnosis.source.syntax import enclosing_function, names_in
from hangdoc.model.diagnosis import Activity
from hangdoc.model.kinds import MESSAGES, ActivityKind
from hangdoc.model.process import Stack
from hangdoc.model.snapshot import RankSnapshot

_MESSAGES = ".messages"
"""How the local is called that tells the messages of a list: 'isend 2, irecv 0'."""
_WAYS = {ActivityKind.SEND: "isend", ActivityKind.RECV: "irecv"}


def with_peers(
    activities: Mapping[int, Activity], ranks: Mapping[int, RankSnapshot], sources: Sources
) -> dict[int, Activity]:
    """``activities``; those that wait in messages, with the peer that they can only wait for.

    That is the peer of each rank's only message, or the only rank outside of messages that all of them may wait for;
    one that waits for a rank in a message gets its possible peers as members. Example: rank 1 waits for one of its
    messages with 0 and 2, rank 3 for one of its with 2 and 4, and the others wait in a barrier → rank 2. Who waits
    further on for a rank that is still to come there waits for it at least, and tells of no other.
    """
    waiting = [rank for rank, a in activities.items() if a.kind in MESSAGES]
    journals = [journal for rank in waiting if (journal := ranks[rank].journal) is not None]
    if not waiting or any(journal.is_history for journal in journals):
        return dict(activities)
    owners: set[Hashable] = set()
    possible: dict[int, frozenset[int]] = {}
    for rank in sorted(waiting):
        peers = _possible(activities[rank], sources, _has_own_native_frames(ranks[rank], owners))
        possible[rank] = peers.intersection(activities)
    for rank, peers in possible.items():
        here = activities[rank].stack
        to_come = {each for each in peers.intersection(waiting) if is_to_come(sources, activities[each].stack, here)}
        possible[rank] = frozenset(to_come) or peers
    all_known = all(len(peers) == 1 for peers in possible.values())
    # Who can only wait for ranks in messages waits for what these wait for.
    outside = [free for peers in possible.values() if (free := peers.difference(waiting)) or not peers]
    common = frozenset.intersection(*outside) if outside else frozenset()
    found = dict(activities)
    for rank, peers in possible.items() if all_known or len(common) == 1 else ():
        only = peers if all_known else common & peers
        if activities[rank].peer is None and len(only) == 1:
            found[rank] = replace(activities[rank], peer=next(iter(only)))
        elif activities[rank].peer is None:
            found[rank] = replace(activities[rank], members=tuple(sorted(peers)))
    return found


def is_to_come(sources: Sources, stack: Stack, place: Stack) -> bool:
    """True if who is at ``stack`` is still to come to ``place``, in the same call of the same function, and no loop
    leads from there to here.

    Example: `self.flush(heads) ⏎ … ⏎ self.flush(blocks)`, and the one is in the first, the other in the second → True.
    """
    way = fork(stack, place)
    apart = way.within_function
    if apart is None or apart[0].line >= apart[1].line:
        return False
    for frame in way.mine[: way.common]:
        tree = sources.function(frame.file, frame.line)
        if tree is None or loops_around(tree, frame.line):
            return False
    tree = sources.function(apart[0].file, apart[0].line)
    here, there = ({g.place: g for g in guards(tree, each.line)} if tree is not None else None for each in apart)
    if here is None or there is None:
        return False
    shared = [(here[place], there[place]) for place in here.keys() & there.keys()]
    return all(mine.kind != "loop" and mine.taken == other.taken for mine, other in shared)


def _possible(activity: Activity, sources: Sources, way_seen: bool) -> frozenset[int]:
    """The peers that a rank may wait for; empty where nothing tells."""
    if activity.peer is not None:
        return frozenset({activity.peer})
    messages = _batch(activity.stack) or _issued(activity.stack, sources)
    way = _WAYS.get(activity.kind) if way_seen else None
    return frozenset(peer for kind, peer in messages if way in (None, kind))


def _batch(stack: Stack) -> set[tuple[str, int]]:
    """('isend', 2) for each message that the innermost user frame with such a list holds."""
    for frame in user_stack(stack):
        found = {
            (kind, int(peer))
            for local in frame.locals
            if local.name.endswith(_MESSAGES)
            for kind, _, peer in (each.partition(" ") for each in local.value.split(", "))
            if peer.isdecimal() and len(peer) < 8
        }
        if found:
            return found
    return set()


def _issued(stack: Stack, sources: Sources) -> set[tuple[str, int]]:
    """The same by the calls in the innermost function: ('isend', 2) of `dist.isend(x, (self.rank + 1) % self.world)`
    and of `P2POp(dist.isend, x, 2)`.

    Empty where the peer of one of them cannot be told: it may be the one. So it is with an item of a loop that has
    ended: `for peer in peers: ⏎ work.append(dist.isend(x, peer))` has issued more than the last one.
    """
    frame = next(iter(user_stack(stack)), None)
    tree = sources.function(frame.file, frame.line) if frame is not None else None
    if frame is None or tree is None:
        return set()
    values = {local.name: local.value for local in frame.locals}
    function = enclosing_function(tree, frame.line)
    ended = items_of_ended_loops(function, frame.line)
    found = set()
    for kind, node, given in message_calls(function):
        if kind not in _WAYS.values():
            continue  # the rank has come out of it
        if not ended.isdisjoint(names_in(given)):
            return set()
        peer = value_of(given, values) if given is not None else ""
        if peer == "None":
            continue  # it has no such neighbor: the call is under a condition
        if not peer.isdecimal() or len(peer) > 7 or _in_group(node):
            return set()
        found.add((kind, int(peer)))
    return found


def _in_group(call: ast.Call) -> bool:
    """True if the peer is given as a rank of a group."""
    return any((each.arg or "").startswith("group") for each in call.keywords if each.arg != "group")


def _has_own_native_frames(rank: RankSnapshot, owners: set[Hashable]) -> bool:
    """True if the native frames were read of this rank. They are read of the first rank at a place and put on all that
    wait there, and of a batch these may wait for messages of the other way."""
    last = rank.process.last if rank.process is not None else None
    native = last.main.native_frames if last is not None and last.main is not None else ()
    known = native in owners
    owners.add(native)
    return bool(native) and not known
