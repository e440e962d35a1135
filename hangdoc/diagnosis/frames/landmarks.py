"""Library frames in plain words: the reader of ``landmarks.toml``."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from functools import lru_cache

from hangdoc.diagnosis.frames.library import is_installed, is_library, package_of
from hangdoc.diagnosis.frames.names import names
from hangdoc.model.kinds import COMMUNICATING, ActivityKind, WaitReason
from hangdoc.model.operations import is_explicit
from hangdoc.model.process import Frame, Stack
from hangdoc.model.tables import table


class Role(Enum):
    """What a landmark is, where a decision depends on it."""

    BACKWARD = "backward"
    """Gradients are synchronized."""
    GRADIENTS = "gradients"
    """Gradients are reduced or parameters shared by a library, in as many calls on all ranks."""
    GROUPS = "groups"
    """Process groups are made, and whoever calls it knows that."""
    JOINED = "joined"
    """The rank is through with its inputs, and answers the steps of those that are not (Join)."""
    LOGGED = "logged"
    """Values that user code has logged are reduced."""


_IMPORTED = "<module>"
"""A module that is being imported does nothing yet of what its functions do."""


@dataclass(frozen=True, slots=True)
class Landmark:
    """What a library frame is for. ``advice``: what else would cure a call on some ranks only."""

    file: str
    functions: frozenset[str]
    words: str
    kind: ActivityKind | None = None
    reason: WaitReason | None = None
    implicit: bool = False
    advice: str = ""
    role: Role | None = None
    stage: str = ""
    """Of a trainer's loop; frames of one stage have the same."""
    reasons: str = ""
    """Of a stage: when the library comes to it."""
    by_operation: tuple[tuple[str, str], ...] = ()
    """(part of an operation's name, the words where that operation is called)."""

    def matches(self, file: str, function: str) -> bool:
        """True if the frame's path ends in (or, for a folder, contains) this one's, and the function agrees."""
        if self.file.endswith("/"):
            if self.file not in file:
                return False
        elif not file.endswith("/" + self.file) and file != self.file:
            return False
        return function in self.functions or ("*" in self.functions and function != _IMPORTED)


@lru_cache(maxsize=2)
def _table(kind: str = "landmark") -> tuple[Landmark, ...]:
    return tuple(
        Landmark(
            entry["file"],
            frozenset(entry["function"]),
            entry.get("words", ""),
            ActivityKind(entry["kind"]) if "kind" in entry else None,
            WaitReason(entry["reason"]) if "reason" in entry else None,
            entry.get("implicit", False),
            entry.get("advice", ""),
            Role(entry["role"]) if "role" in entry else None,
            entry.get("stage", ""),
            entry.get("reasons", ""),
            tuple(entry.get("by_operation", {}).items()),
        )
        for entry in table(__package__, "landmarks")[kind]
    )


@lru_cache(maxsize=65536)
def _lookup(file: str, function: str) -> Landmark | None:
    return next((mark for mark in _table() if mark.matches(file, function)), None)


@lru_cache(maxsize=1)
def _servants() -> dict[str, tuple[str, str]]:
    """The beginning of a thread's name → what it is at, and what it is at where it reduces."""
    return {entry["name"]: (entry["words"], entry["reducing"]) for entry in table(__package__, "landmarks")["thread"]}


def serves_another_thread(name: str) -> bool:
    """True if a thread of this name is one of a library's, whose work another thread waits for.

    Example: 'pt_autograd_0' runs the backward pass while the thread that called ``backward()`` waits for it.
    """
    return name.startswith(tuple(_servants()))


def words_of_thread(name: str, op: str) -> str | None:
    """What a thread of this name does in such a call, in plain words; None for one that serves no other."""
    found = next((said for begin, said in _servants().items() if name.startswith(begin)), None)
    return found["reduce" in op] if found is not None else None


def landmark(frame: Frame) -> Landmark | None:
    """The landmark of one frame; None for user code and unknown library code."""
    return _lookup(frame.file, plain(frame.function)) if is_library(frame) else None


def plain(function: str) -> str:
    """The code name without its class: 'Trainer.fit' → 'fit' (py-spy gives qualified names, torch plain ones)."""
    return function.rsplit(".", 1)[-1] if "." in function else function


def number_below_user(stack: Stack, *locals_: str) -> int | None:
    """A whole number that a library frame below the user's code holds in a local of one of these names: the root, the
    peer or the tag of the call, from torch.distributed's frames."""
    for frame in below_user(stack):
        for local in frame.locals:
            if local.name in locals_ and local.value.removeprefix("-").isdecimal():
                return int(local.value)
    return None


def below_user(stack: Stack) -> Stack:
    """The library frames between the innermost user frame and the end of the stack, innermost first."""
    for index, frame in enumerate(stack):
        if not is_library(frame):
            return stack[:index]
    return stack


def words(stack: Stack) -> str | None:
    """What the library is doing for the user's line, in plain words: the landmark that the user called. Where that is
    backward(), what a library does in it."""
    marks = [mark for mark in (landmark(f) for f in below_user(stack)) if mark and mark.words]
    # How a library waits for its own tasks says less than what it does for the user.
    found = [mark for mark in marks if mark.reason != WaitReason.TASK] or marks
    if not found:
        return None
    inner, outer = found[0], found[-1]
    if outer.role is Role.BACKWARD and inner.role is not Role.BACKWARD:
        return f"{_words_of(inner, stack)} in backward()"
    # Of the parts of one file, the innermost says most: the forward of DDP, and in it the broadcast of its buffers.
    said = next(mark for mark in found if mark.file == outer.file)
    return _words_of(said if said.kind in COMMUNICATING or said.implicit else inner, stack)


def is_named_by_library(op: str, stack: Stack) -> bool:
    """True if ``op`` is not an operation, but what a library does there: the stack shows no more of the call."""
    return is_implicit(stack) and op == words(stack)


def _words_of(mark: Landmark, stack: Stack) -> str:
    """The mark's words, by the innermost operation that has words of its own."""
    called = (plain(frame.function) for frame in below_user(stack))
    own = (said for function in called for part, said in mark.by_operation if part in function)
    return next(own, mark.words)


def library_call(stack: Stack) -> str:
    """The function of an installed package, other than torch, that the user's line is in: "somelib's fit()"; '' where
    there is none."""
    frames = (frame for frame in reversed(_from_the_users_call(stack)) if is_installed(frame.file))
    first = next((frame for frame in frames if package_of(frame.file) != "torch"), None)
    return f"{package_of(first.file)}'s {plain(first.function)}()" if first is not None else ""


def has_role(stack: Stack, role: Role) -> bool:
    """True if the innermost or the outermost landmark below the user's code has this role."""
    marks = [mark for frame in below_user(stack) if (mark := landmark(frame)) is not None and mark.words]
    return any(mark.role is role for mark in (marks[0], marks[-1])) if marks else False


def is_within_reduction(stack: Stack, file: str, line: int) -> bool:
    """True if the library's line is in the work of reducing gradients: a loop there goes over what all ranks have.

    Example: `for bucket in buckets:` in what DeepSpeed's allreduce_gradients() calls.
    """
    below = below_user(stack)
    at = next((i for i, frame in enumerate(below) if (frame.file, frame.line) == (file, line)), len(below))
    marks = (mark for frame in below[at:] if (mark := landmark(frame)) is not None)
    return any(mark.role in (Role.BACKWARD, Role.GRADIENTS) for mark in marks)


def stage(stack: Stack) -> Landmark | None:
    """The stage of a trainer's loop that the library is in below the user's code, the innermost."""
    frames = (frame for frame in below_user(stack) if is_library(frame))
    found = (next((s for s in _table("stage") if s.matches(f.file, plain(f.function))), None) for f in frames)
    return next((s for s in found if s is not None), None)


def advice(stack: Stack) -> str:
    """What else cures a library call that only some ranks make; '' where nothing is known of it."""
    marks = (landmark(frame) for frame in reversed(below_user(stack)))
    return next((mark.advice for mark in marks if mark is not None and mark.advice), "")


def is_implicit(stack: Stack) -> bool:
    """True if a library communicated on its own, in a call whose name does not say so.

    Example: train.py → ``model(x)`` → DDP's forward → broadcast is implicit; train.py → ``dist.broadcast()`` is not.
    """
    below = _from_the_users_call(stack)
    if not below or is_explicit(plain(below[-1].function)):
        return False
    if any(mark is not None and mark.implicit for mark in map(landmark, below)):
        return True
    # The user's own line calls into a package that, some frames deeper, calls torch.distributed.
    return not is_distributed(below[-1]) and any(is_distributed(f) for f in below)


def _from_the_users_call(stack: Stack) -> Stack:
    """The library frames from the function that the user's line called on, innermost first, without wrappers."""
    below = below_user(stack)
    if len(below) == len(stack):  # a library's own thread: the frames that started it say nothing
        while below and not is_distributed(below[-1]) and landmark(below[-1]) is None:
            below = below[:-1]
    while below and below[-1].file.endswith(names("wrapper_file")):
        below = below[:-1]
    return below


def is_distributed(frame: Frame) -> bool:
    """True if the frame belongs to torch.distributed."""
    return "torch/distributed/" in frame.file
