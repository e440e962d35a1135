"""The closed vocabularies of a diagnosis. Their values are the words of the public JSON; code compares the members."""

from __future__ import annotations

from enum import Enum


class Word(str, Enum):
    """An enum whose members are written as their value ('in-collective'), in f-strings and in JSON alike."""

    def __str__(self) -> str:
        return str(self.value)

    def __format__(self, format_spec: str) -> str:
        return format(str(self.value), format_spec)


class ActivityKind(Word):
    """What a rank, or another process, does."""

    IN_COLLECTIVE = "in-collective"
    SEND = "send"
    RECV = "recv"
    STORE_WAIT = "store-wait"
    REMOTE_CALL = "remote-call"
    EVENT_LOOP = "event-loop"
    WAITING_FOR_CHILD = "waiting-for-child"
    WAITING_FOR_WORKER = "waiting-for-worker"
    LOCK = "lock"
    FILE_LOCK = "file-lock"
    PIPE = "pipe"
    TERMINAL = "terminal"
    DEBUGGER = "debugger"
    SLEEPING = "sleeping"
    IO = "io"
    COMPUTING = "computing"
    COMPILING = "compiling"
    GIL_HELD = "gil-held"
    SHUTTING_DOWN = "shutting-down"
    STOPPED = "stopped"
    UNINTERRUPTIBLE = "uninterruptible"
    ZOMBIE = "zombie"
    EXITED = "exited"
    ABSENT = "absent"
    NOT_VISIBLE = "not-visible"

    @property
    def in_words(self) -> str:
        """'waiting for worker'."""
        return self.value.replace("-", " ")


MESSAGES = frozenset({ActivityKind.SEND, ActivityKind.RECV})
"""It waits for one other rank."""
COMMUNICATING = MESSAGES | {ActivityKind.IN_COLLECTIVE, ActivityKind.STORE_WAIT}
"""It waits for other ranks."""
BY_ITSELF = frozenset(
    {
        *(ActivityKind.SLEEPING, ActivityKind.COMPUTING, ActivityKind.COMPILING, ActivityKind.UNINTERRUPTIBLE),
        *(ActivityKind.TERMINAL, ActivityKind.DEBUGGER, ActivityKind.STOPPED),
    }
)
"""Nothing of the job's has to happen before it goes on, as far as its own process shows."""
GONE = frozenset({ActivityKind.EXITED, ActivityKind.ZOMBIE, ActivityKind.ABSENT})
"""It will never do anything again."""


class WaitReason(Word):
    """What is known of a wait beyond its kind, where a decision depends on it."""

    UNKNOWN = "unknown"
    """Neither Python's nor native frames show the reason."""
    UNNAMED = "unnamed"
    """A collective or a message, and no evidence shows which."""
    SHARED_LOCK = "shared-lock"
    """A lock or semaphore of multiprocessing's, which several processes share."""
    QUEUE = "queue"
    """A queue of multiprocessing's: a pipe of which every process that has the queue holds both ends."""
    TASK = "task"
    """The result of a task or an actor of Ray's, which a scheduler of its own places in another process."""
    POOL = "pool"
    """A result of multiprocessing's Pool."""
    SIGNAL = "signal"
    """A signal: signal.sigwait() and its like, signal.pause()."""
    DESTROY_GROUP = "destroy-group"
    """destroy_process_group."""
    RENDEZVOUS = "rendezvous"
    """torchrun's rendezvous, for other nodes."""


class Outcome(Word):
    """How the job is."""

    HANG = "hang"
    SLOW = "slow"
    CRASHED = "crashed"
    HEALTHY = "healthy"
    BLIND = "blind"


class Confidence(Word):
    """How sure the whole sentence is: rank, cause and condition."""

    CERTAIN = "certain"
    LIKELY = "likely"
    POSSIBLE = "possible"
