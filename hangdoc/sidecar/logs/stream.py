"""The thread that reads the logs as they grow and writes the one stream of them to stdout.

It never holds up the job: ranks write to files, and where nobody reads stdout, the stream waits and the files grow.
"""

from __future__ import annotations

import contextlib
import os
import select
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from hangdoc.model.wording import fold_ranks
from hangdoc.sidecar.logs.choice import Choice, choose
from hangdoc.sidecar.logs.echoes import Echo, Echoes
from hangdoc.sidecar.logs.folder import LogFolder, Tail
from hangdoc.sidecar.logs.folding import Folding, Said
from hangdoc.sidecar.logs.lines import Reader
from hangdoc.sidecar.logs.owners import files_of_ranks, ranks_of_files

_POLL_SECONDS = 0.05
_IDLE_POLL_SECONDS = 0.1
"""The same while nothing comes: the first line after a silence is a blink later."""
_SEARCH_SECONDS = 0.2
_IDLE_SECONDS = 1.0
_RARE_SEARCH_SECONDS = 1.0
_LIVELY_SECONDS = 20.0
"""Between searches for new ranks: so long after the start and after new ones came, and later. Judgement."""
_RAREST_SEARCH_SECONDS = 30.0
_CHUNK = 64 << 10
"""Bytes of each file and round."""
_LONGEST_TAG = 32
_WIDEST_COLUMN = 12
"""Cells up to which tags are padded, so that what ranks say stands below each other."""
_DIM, _PLAIN = "\x1b[2m", "\x1b[0m"
_HOLD_SECONDS = 2.0
_NOBODY_READS = 1.0


@dataclass(frozen=True, slots=True)
class Look:
    """Where the stream goes and how it may look. ``output``: a descriptor, -1 if stdout is closed."""

    color: bool = False
    encoding: str = "utf-8"
    output: int = 1


class LogStream:
    """Made before the command starts, with the files it will write to; ``begin`` once it runs."""

    @classmethod
    def open(cls, run_directory: Path, command: Sequence[str], environment: Mapping[str, str], look: Look) -> LogStream:
        """Make the files below ``run_directory``, which exists. Raises ``WatcherFailed``."""
        folder = LogFolder(run_directory)
        return cls(folder, choose(command, environment, folder.path), look)

    def __init__(self, folder: LogFolder, choice: Choice, look: Look) -> None:
        self._folder = folder
        self._choice = choice
        self._look = look
        self._folding = Folding()
        self._echoes = Echoes()
        self._launcher = 0
        self._thread: threading.Thread | None = None
        self._busy = threading.Lock()
        """Held while a round reads and writes."""
        self._ended = threading.Event()
        """The command has ended: what is in the files now is all."""
        self._stop = threading.Event()
        self._done = threading.Event()
        self._column = 0
        self._next_search = 0.0
        self._lively_until = time.monotonic() + _LIVELY_SECONDS
        self._heard_at = 0.0
        self._elsewhere = choice.elsewhere
        """Ranks have files in another folder than ours, which only they name."""
        self._pause = 0.5
        self._ask_processes_at = 0.0

    @property
    def path(self) -> Path:
        """The folder of the files."""
        return self._folder.path

    @property
    def contents(self) -> str:
        """What is in the folder."""
        own = self._choice.by_rank and not self._choice.elsewhere
        return "the logs of the ranks and of the command are" if own else "the command's output is"

    @property
    def notes(self) -> Sequence[str]:
        """What is to be said of the user's own settings."""
        return self._choice.notes

    @property
    def variables(self) -> Mapping[str, str]:
        """What the command's environment gets."""
        return self._choice.variables

    @property
    def outputs(self) -> tuple[int, ...]:
        """The descriptors that become the command's stdout and stderr."""
        return self._folder.outputs

    def begin(self, launcher: int, on_failure: Callable[[str], None]) -> None:
        """The command runs as ``launcher``. ``on_failure`` is called, once, if the stream ends early."""
        self._folder.let_go()
        self._launcher = launcher
        self._thread = threading.Thread(target=self._run, args=(on_failure,), name="hangdoc-logs", daemon=True)
        try:
            self._thread.start()
        except RuntimeError as error:  # no more threads
            self._thread = None
            self._done.set()
            on_failure(str(error))

    @contextlib.contextmanager
    def held(self) -> Iterator[None]:
        """Nothing is written to stdout meanwhile: a report of several lines stays in one piece. Of a command that has
        ended, all is shown first."""
        if self._ended.is_set():
            self._done.wait(_HOLD_SECONDS)
        got = self._busy.acquire(timeout=_HOLD_SECONDS)  # a round that waits for stdout's reader must not stop us
        try:
            yield
        finally:
            if got:
                self._busy.release()

    def end(self) -> None:
        """The command has ended: show what is left, and stop."""
        self._ended.set()

    def is_done(self, wait_seconds: float = 0.0) -> bool:
        """True if all has been shown, or nobody reads it; waits for that so long at most."""
        return self._done.wait(wait_seconds) if wait_seconds else self._done.is_set()

    def close(self) -> None:
        """Stop, whatever is left."""
        self._ended.set()
        self._stop.set()
        if self._thread is None or self._done.wait(_HOLD_SECONDS):
            self._folder.close()

    def _run(self, on_failure: Callable[[str], None]) -> None:
        try:
            while not self._stop.is_set():
                last, began = self._ended.is_set(), time.monotonic()
                with self._busy:
                    more = self._round(began, last=last)
                if last and not more:
                    return
                if not last:
                    # Of a flood, no more than half a core is spent on the show.
                    took = time.monotonic() - began
                    idle = began - self._heard_at > _IDLE_SECONDS
                    self._ended.wait(
                        min(_POLL_SECONDS, took) if more else _IDLE_POLL_SECONDS if idle else _POLL_SECONDS
                    )
        except BrokenPipeError:
            pass  # whoever read it has had enough, as with every program; the files go on
        except Exception as error:  # the stream is a view: a failure in it must not end the watch
            on_failure(f"{type(error).__name__}: {error}")
        finally:
            self._done.set()

    def _round(self, now: float, *, last: bool) -> bool:
        """Read what is new and write what is due; True if there is more to read at once."""
        if last or now >= self._next_search:
            self._search(now)
            self._finish_ended(now)
        more = False
        grown = [(written, tail) for tail in self._folder.tails if (written := tail.written()) >= 0]
        # What two streams of a rank say in one moment comes in the order in which they were written to.
        for _, tail in sorted(grown, key=lambda each: each[0]):
            data = tail.read(_CHUNK)
            more |= len(data) == _CHUNK
            self._hear(tail, data, now)
            self._heard_at = now
        for tail in self._folder.tails:
            self._say(tail, tail.splitter.unfinished(now), now, always=False)
        if last and not more:
            for tail in self._folder.tails:
                self._say(tail, tail.splitter.end(), now, always=False)
        self._write(self._folding.flush() if last and not more else self._folding.take(now))
        return more

    def _finish_ended(self, now: float) -> None:
        """Show the rest of files that will not grow, before what comes after them."""
        ended = self._folder.ended()
        for tail in ended:
            while data := tail.read(_CHUNK):
                self._hear(tail, data, now)
            self._say(tail, tail.splitter.end(), now, always=False)
        self._folder.drop(ended)

    def _search(self, now: float) -> None:
        if not self._choice.by_rank:
            self._next_search = float("inf")
            return
        if self._folder.search():
            self._lively_until = now + _LIVELY_SECONDS
            self._expect()
        self._next_search = now + (_SEARCH_SECONDS if now < self._lively_until else _RARE_SEARCH_SECONDS)
        if (self._elsewhere or not self._folder.attempts) and now >= self._ask_processes_at:
            # Ranks whose launcher was given another folder, here or in a script that we do not see into.
            for path, descriptor, rank in files_of_ranks(self._launcher):
                self._elsewhere |= self._folder.add_elsewhere(path, descriptor, rank)
            self._expect()
            self._pause = 1.0 if self._elsewhere else min(2 * self._pause, _RAREST_SEARCH_SECONDS)
            self._ask_processes_at = now + self._pause

    def _expect(self) -> None:
        """A line is complete once all ranks of the latest start have said it."""
        attempt = next(reversed(self._folder.attempts.values()), None)
        self._folding.expect(attempt.ranks() if attempt is not None else frozenset())

    def _hear(self, tail: Tail, data: bytes, now: float) -> None:
        if tail.local is not None and self._choice.only is not None and tail.local not in self._choice.only:
            return
        if data and tail.reader is None:
            tail.reader = Reader(self._rank(tail), stderr=tail.stderr, color=self._look.color)
        if tail.skipped:
            self._say(tail, tail.splitter.end(), now, always=False)
            self._say(tail, f"… {tail.skipped} bytes are left out here; all of it is in {tail.path}", now)
        for text in tail.splitter.feed(data, now):
            self._say(tail, text, now)
        if self._folding.is_full():
            self._write(self._folding.take(now))

    def _rank(self, tail: Tail) -> int | None:
        """The rank that writes the file. Its process tells, or that of another rank of the same start."""
        attempt = tail.attempt
        if attempt is None or tail.local is None:
            return None
        if attempt.base is None:
            known = ranks_of_files(self._launcher)
            for other in self._folder.tails:
                if other.attempt is attempt and other.local is not None and other.identity in known:
                    attempt.base = known[other.identity] - other.local
                    break
            else:
                attempt.base = 0  # they have ended already
            self._expect()
        return attempt.rank(tail.local)

    def _say(self, tail: Tail, text: str, now: float, *, always: bool = True) -> None:
        if tail.reader is None or not (text or always):
            return
        rank = self._rank(tail) if tail.attempt is not None else None
        self._folding.add(rank, tail.reader.line(text, now), now)

    def _write(self, said: Sequence[Said]) -> None:
        if not said or self._look.output < 0:
            return
        text = "".join(map(self._rendered, self._echoes.collapse(said)))
        data = memoryview(text.encode(self._look.encoding, "backslashreplace"))
        while data and not self._stop.is_set():
            if select.select([], [self._look.output], [], _NOBODY_READS)[1]:
                data = data[os.write(self._look.output, data[: select.PIPE_BUF]) :]

    def _rendered(self, said: Said | Echo) -> str:
        """'[0-3] epoch 1'. What the command itself says has no ranks before it."""
        if isinstance(said, Echo):
            last = next((line.text.strip() for line in reversed(said.lines) if line.text.strip()), "")
            what = f"(the same {len(said.lines)} lines as {tag_of(said.of)} above, to: {last})"
            said = Said(said.ranks, f"{_DIM}{what}{_PLAIN}" if self._look.color else what)
        if not said.ranks:
            return f"{said.text}\n"
        tag = tag_of(said.ranks)
        self._column = max(self._column, min(len(tag), _WIDEST_COLUMN))
        padded = tag.ljust(self._column)
        if self._look.color:
            style = "1;31" if said.error else "36" if len(said.ranks) == 1 else "1;36"
            padded = f"\x1b[{style}m{padded}{_PLAIN}"
        return f"{padded} {said.text}".rstrip() + "\n"


def tag_of(ranks: Sequence[int]) -> str:
    """'[0-3]', '[1]'; of many scattered ones some are named: '[0,2,4 … 62: 32 ranks]'."""
    folded = fold_ranks(ranks)
    if len(folded) <= _LONGEST_TAG:
        return f"[{folded}]"
    runs = folded.split(",")
    return f"[{','.join(runs[:3])} … {runs[-1]}: {len(ranks)} ranks]"
