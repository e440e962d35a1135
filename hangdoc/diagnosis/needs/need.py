"""A need: what one thread waits for, and whose part it is to give it.

A wait-for graph over threads and resources (Chandy, Misra, Haas 1983): a need is the edge from a thread to a resource,
``on`` the edges from there to those that may give it.
"""

from __future__ import annotations

from dataclasses import dataclass

from hangdoc.model.kinds import Word


class NeedKind(Word):
    """What a thread waits for."""

    JOIN = "join"
    """That others make the call that it is in."""
    RECEIVE = "receive"
    """A message."""
    SEND = "send"
    """That its message is taken."""
    KEY = "key"
    """A key of a store."""
    LOCK = "lock"
    ITEM = "item"
    """Of a queue, a pipe, a socket: what somebody puts in."""
    END = "end"
    """Of a process, a thread or a task."""
    ANSWER = "answer"
    """To a request."""
    EVENT = "event"
    """That a flag is set, or a condition notified."""
    COUNT = "count"
    """n of m have come."""
    SPACE = "space"
    """In a bounded queue, in a full pool."""
    ABSENCE = "absence"
    """That a file or a key is gone."""
    FILE = "file"
    """That a file, or what stands in it, is there."""
    PREDICATE = "predicate"
    """A test that it asks again and again, of which nothing else is known."""
    DEVICE = "device"
    OUTSIDE = "outside"
    """Nothing of the job's: a person, a disk, a clock, its own work."""


class Reach(Word):
    """Of whom the need is."""

    RANKS = "ranks"
    """Of ranks that the calls themselves name."""
    JOB = "job"
    """Of other processes of the job: any of them may give it."""
    OWN = "own"
    """Of the rank's own threads and children."""
    OUTSIDE = "outside"
    """Of nothing of the job's."""


AMONG_RANKS = frozenset({NeedKind.JOIN, NeedKind.RECEIVE, NeedKind.SEND, NeedKind.DEVICE})
"""Calls and messages of torch.distributed."""


@dataclass(frozen=True, slots=True)
class Waiter:
    """A thread of a rank. ``thread``: its kernel's number; 0 of one that only a dump or a log shows."""

    rank: int
    thread: int = 0


@dataclass(frozen=True, slots=True)
class Need:
    """One thread cannot go on before it gets this."""

    kind: NeedKind
    identity: str
    """Which one, as far as it is known: 'all_reduce default_pg #7', 'store key done0', 'self.jobs', a path; ''."""
    waiter: Waiter
    on: tuple[int, ...] = ()
    """The ranks whose part it is; () where it is none's, or nobody knows."""
    either: bool = False
    """One of ``on`` is enough; False: it takes all of them (an OR and an AND node of the graph)."""
    reach: Reach = Reach.RANKS
    seen_by: str = "stack"
    """'journal', 'stack', 'process', 'socket', 'store', 'source': the source that shows it."""
    since: float | None = None
    """Since when, as Unix time; None where nothing shows it."""
