"""Workers that read dump files, one for each core: asked for the next files as soon as they have answered.

A worker that dies takes only the file that it was reading with it: another one goes on with the rest.
"""

from __future__ import annotations

import contextlib
import os
import selectors
import signal
import socket
import subprocess
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from hangdoc import interpreter
from hangdoc.capture.dumps.worker import ANSWER, LONGEST_ANSWER, MEMORY, MOST_FILES
from hangdoc.capture.safe.foreign import parse_json

_SECONDS = 120.0
"""For one file: longer than the worker's CPU limit, as a busy machine or a slow disk may be."""
_MOST_LOST = 60.0
"""Seconds for all files together that a worker did not survive: thousands of them would take hours. Chosen by hand."""
_TO_START = 0.1
"""Seconds that another worker takes to come."""
_BYTES_FOR_A_WORKER = 4 << 20
"""To start one takes as long as to read these."""


def read_all(
    files: Sequence[Callable[[], int]], sizes: Sequence[int], done: Callable[[int], None] | None = None
) -> Iterator[tuple[int, int, dict[str, Any]]]:
    """(number of the file, number of the worker, its answer), as they come.

    ``files``: each opens one, and returns the descriptor or raises ``OSError`` or ``ValueError``. An answer is a digest
    (``digest.digest``), or {"bad": why}, {"foreign": why}.
    """
    count = min(_cores(), max(1, sum(sizes) // _BYTES_FOR_A_WORKER), len(files))
    with _Pool(files) as pool:
        for _ in range(count):
            pool.start()
        for finished, found in enumerate(pool.answers(), 1):
            if done is not None:
                done(finished)
            yield found


def _cores() -> int:
    return len(os.sched_getaffinity(0))


class _Pool:
    def __init__(self, files: Sequence[Callable[[], int]]) -> None:
        self._files = files
        self._waiting = deque(range(len(files)))
        self._workers: dict[int, _Worker] = {}
        self._started = 0
        self._lost = 0.0
        """Seconds."""
        self._selector = selectors.DefaultSelector()

    def __enter__(self) -> _Pool:
        return self

    def __exit__(self, *_: object) -> None:
        for worker in self._workers.values():
            worker.end()
        self._selector.close()

    def start(self) -> None:
        """One more worker."""
        worker = _Worker(self._started)
        self._started += 1
        self._workers[worker.number] = worker
        self._selector.register(worker.socket, selectors.EVENT_READ, worker)

    def answers(self) -> Iterator[tuple[int, int, dict[str, Any]]]:
        """The answers of all files. Every file has one."""
        while self._waiting or any(worker.asked for worker in self._workers.values()):
            for worker in list(self._workers.values()):
                if len(worker.asked) <= MOST_FILES // 4:
                    yield from self._ask(worker)
            for key, _ in self._selector.select(1.0):
                yield from self._hear(key.data)
            late = time.monotonic() - _SECONDS
            for worker in [w for w in self._workers.values() if w.asked and w.heard < late]:
                yield from self._give_up(worker, f"reading it takes longer than {_SECONDS:g} s")

    def _ask(self, worker: _Worker) -> Iterator[tuple[int, int, dict[str, Any]]]:
        """Give the worker some more files; not all there are, or the others would have nothing to do."""
        if self._lost > _MOST_LOST:
            yield from ((number, worker.number, {"bad": _NOT_READ}) for number in self._waiting)
            self._waiting.clear()
            return
        share = max(1, min(MOST_FILES, len(self._waiting) // (2 * len(self._workers))))
        opened: list[tuple[int, int]] = []
        while self._waiting and len(opened) < share:
            number = self._waiting.popleft()
            try:
                opened.append((number, self._files[number]()))
            except (OSError, ValueError) as error:
                why = error.strerror if isinstance(error, OSError) else str(error)
                yield number, worker.number, {"bad": why or type(error).__name__}
        if opened:
            worker.ask(opened)

    def _hear(self, worker: _Worker) -> Iterator[tuple[int, int, dict[str, Any]]]:
        alive = worker.receive()
        for answer in worker.whole_answers():
            number = worker.asked.popleft()
            if answer.get("large"):
                yield from self._too_large(worker, number)
                return
            worker.answered += 1
            yield number, worker.number, answer
        if not alive:
            yield from self._give_up(worker, worker.why_it_ended())

    def _too_large(self, worker: _Worker, number: int) -> Iterator[tuple[int, int, dict[str, Any]]]:
        """It may be another file's fault: a worker that has read some is not asked to judge."""
        worker.asked.appendleft(number)
        yield from self._give_up(worker, _TOO_MUCH, again=worker.answered > 0)

    def _give_up(self, worker: _Worker, why: str, *, again: bool = False) -> Iterator[tuple[int, int, dict[str, Any]]]:
        """End the worker, which failed with the first file that it has not answered; another one reads the others."""
        self._selector.unregister(worker.socket)
        worker.end()
        del self._workers[worker.number]
        left = list(worker.asked)
        if left and not again:
            self._lost += _TO_START + worker.took + time.monotonic() - worker.heard
            yield left.pop(0), worker.number, {"bad": why}
        self._waiting.extendleft(reversed(left))
        if self._waiting:
            self.start()


_NOT_READ = "it was not read: too many files here take more memory or time than there is"
_TOO_MUCH = f"it takes more than {MEMORY >> 20} MiB of memory"


class _Worker:
    def __init__(self, number: int) -> None:
        self.number = number
        self.asked: deque[int] = deque()
        """Files that it has not answered."""
        self.answered = 0
        self.heard = time.monotonic()
        self.took = 0.0
        """Seconds for the latest answer."""
        self._buffer = bytearray()
        self.socket, theirs = socket.socketpair()
        with theirs:
            self._process = subprocess.Popen(
                interpreter.command("from hangdoc.capture.dumps import worker; worker.main()", options=("-S",)),
                env=interpreter.environment(),
                stdin=theirs.fileno(),
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                start_new_session=True,
            )

    def ask(self, opened: list[tuple[int, int]]) -> None:
        """Send the files' descriptors."""
        if not self.asked:
            self.heard = time.monotonic()
        self.asked.extend(number for number, _ in opened)
        try:
            # A worker that is dead is noticed where its answer is awaited.
            with contextlib.suppress(OSError):
                socket.send_fds(self.socket, [bytes(len(opened))], [descriptor for _, descriptor in opened])
        finally:
            for _, descriptor in opened:
                os.close(descriptor)

    def receive(self) -> bool:
        """Take what it has sent; False if that was the last."""
        try:
            chunk = self.socket.recv(1 << 20)
        except OSError:
            return False
        self._buffer += chunk
        return bool(chunk)

    def whole_answers(self) -> Iterator[dict[str, Any]]:
        """The answers that have come as a whole."""
        while len(self._buffer) >= ANSWER.size:
            (length,) = ANSWER.unpack_from(self._buffer)
            end = ANSWER.size + min(length, LONGEST_ANSWER)
            if len(self._buffer) < end:
                return
            now = time.monotonic()
            self.took, self.heard = now - self.heard, now
            text = bytes(self._buffer[ANSWER.size : end])
            del self._buffer[:end]
            try:
                answer = parse_json(text)
            except ValueError:
                answer = {"large": True}  # what it said of its tables is lost
            yield answer

    def why_it_ended(self) -> str:
        """What to say of the file that it was reading."""
        self._process.kill()
        return "it takes too long" if self._process.wait() == -signal.SIGXCPU else _TOO_MUCH

    def end(self) -> None:
        """End the process."""
        self.socket.close()
        self._process.kill()
        self._process.wait()
