"""Decides whose code a frame is: the user's, or a library's.

Installed libraries are known by their paths. A torch or a Python that was built where its sources lie is known by what
the ranks said, or by the files on their stacks: its frames are marked once, when a diagnosis begins.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import PurePosixPath
from typing import Any, TypeVar

from hangdoc.diagnosis.bounds import SCANNED
from hangdoc.diagnosis.frames.names import names
from hangdoc.model.frames import is_library_file
from hangdoc.model.journal import Journal
from hangdoc.model.process import Frame, Process, ProcessExit, ProcessState, Stack, Thread
from hangdoc.model.snapshot import HostSnapshot, JobSnapshot, RankSnapshot

_GENERATED = "<string>"
"""The file of code that was made from a text, by a library or by hand."""

_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class LibraryFrame(Frame):
    """A frame of library code that its path does not show to be any."""


def is_library(frame: Frame) -> bool:
    """True for library code: standard, installed or generated."""
    return isinstance(frame, LibraryFrame) or _by_path(frame.file)


_PACKAGES = ("site-packages", "dist-packages")


def is_installed(file: str) -> bool:
    """True if a file lies in a folder of installed packages."""
    return not set(PurePosixPath(file).parts).isdisjoint(_PACKAGES)


def package_of(file: str) -> str:
    """The installed package that a file belongs to: 'ignite' of '…/site-packages/ignite/engine/engine.py'; else its
    name without the ending."""
    parts = PurePosixPath(file).parts
    at = next((i for i in reversed(range(len(parts))) if parts[i] in _PACKAGES), -2)
    return PurePosixPath(parts[at + 1] if 0 <= at < len(parts) - 1 else file).stem


@lru_cache(maxsize=65536)
def _by_path(path: str) -> bool:
    # Remembered: a snapshot names the same few files a hundred thousand times.
    return is_library_file(path)


def with_library_frames(job: JobSnapshot) -> JobSnapshot:
    """``job`` with the frames marked that lie below its odd folders of library code, and those that multiprocessing
    generates for its proxies; itself where it has none.

    Example: root /home/me/pytorch/torch → the frame of /home/me/pytorch/torch/nn/functional.py becomes a
    ``LibraryFrame``.
    """
    roots = roots_of(job)
    if not roots and not any(frame.file == _GENERATED for stack in _stacks_now(job) for frame in stack):
        return job
    return _Marking(roots).of(job)


def _is_proxy(stack: Stack, at: int) -> bool:
    """True for the generated method of a Manager's proxy, `<string>:2 put`, which calls multiprocessing's _callmethod.

    Any other `<string>` is what somebody typed.
    """
    return at > 0 and stack[at].file == _GENERATED and stack[at - 1].file.endswith(names("proxy_file"))


def _stacks_now(job: JobSnapshot) -> Iterator[Stack]:
    """The stacks of the ranks' and their children's threads."""
    queue = [rank.process for rank in job.ranks if rank.process is not None]
    while queue:
        process = queue.pop()
        queue.extend(process.children)
        yield from (thread.frames for look in process.looks for thread in look.threads)


_WITH_FRAMES: dict[type, tuple[str, ...]] = {
    JobSnapshot: ("launcher", "ranks", "hosts"),
    HostSnapshot: ("launcher",),
    RankSnapshot: ("process", "exit", "journal", "first_store"),
    Process: ("looks", "children"),
    ProcessState: ("threads",),
    Thread: ("frames",),
    ProcessExit: ("stack",),
    Journal: ("stacks", "failed_at", "handled_at"),
}
"""The parts of a snapshot that hold frames."""


class _Marking:
    def __init__(self, roots: tuple[str, ...]) -> None:
        self._roots = roots
        self._known: dict[int, Any] = {}
        """By identity: journals share their stacks, and they live as long as the job that is marked."""

    def of(self, value: _T) -> _T:
        result: Any = self._any(value)
        return result  # type: ignore[no-any-return]

    def _without_proxies(self, value: tuple[Any, ...]) -> tuple[Any, ...]:
        """``value`` with a proxy's frames marked, if it is a stack."""
        if not value or not isinstance(value[0], Frame):
            return value
        return tuple(_marked(frame) if _is_proxy(value, at) else frame for at, frame in enumerate(value))

    def _any(self, value: Any) -> Any:
        if isinstance(value, tuple):
            known = self._known.get(id(value))
            if known is None:
                known = self._known[id(value)] = tuple(map(self._any, self._without_proxies(value)))
            return known
        if isinstance(value, Frame):
            ours = is_library_file(value.file, self._roots) and not is_library_file(value.file)
            return _marked(value) if ours else value
        names_of = _WITH_FRAMES.get(type(value), ())
        return replace(value, **{name: self._any(getattr(value, name)) for name in names_of}) if names_of else value


def _marked(frame: Frame) -> LibraryFrame:
    return LibraryFrame(frame.file, frame.line, frame.function, frame.locals)


def roots_of(job: JobSnapshot) -> tuple[str, ...]:
    """The folders of library code that do not look like any.

    Example: a frame in /home/me/pytorch/torch/nn/modules/module.py → /home/me/pytorch/torch.
    """
    found = {root.rstrip("/") for root in job.library_roots}
    for stack in _stacks(job):
        found.update(
            frame.file[: frame.file.rindex(end)] + "/torch"
            for frame in stack
            for end in names("inside_torch")
            if frame.file.endswith(end)
        )
    return tuple(sorted(root for root in found if root and not is_library_file(f"{root}/module.py")))


def _stacks(job: JobSnapshot) -> Iterator[Stack]:
    """Some of each rank's stacks."""
    for rank in job.ranks[:SCANNED]:
        last = rank.process.last if rank.process is not None else None
        if last is not None and last.main is not None:
            yield last.main.frames
        if rank.journal is not None:
            yield from rank.journal.stacks[:4]
