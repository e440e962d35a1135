"""What the ranks wrote to files: whose own a file is, which ones they share, and the end of each.

Example: `torchrun … > job.log` gives all ranks, and torchrun itself, one file: its lines are of the job. With
`torchrun --log-dir`, each rank has a file of its own: its lines are that rank's.
"""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from dataclasses import replace

from hangdoc.capture.find.target import RankTarget
from hangdoc.capture.logs.carried import ReadFile
from hangdoc.capture.logs.facts import facts_of
from hangdoc.capture.logs.lines import lines_of
from hangdoc.capture.read import logs
from hangdoc.capture.read.logs import LogFile
from hangdoc.capture.read.written import Output
from hangdoc.capture.safe.text import clean
from hangdoc.model.logged import LogFile as ToldFile
from hangdoc.model.logged import Logged
from hangdoc.model.snapshot import LogTail, Traceback
from hangdoc.model.tracebacks import tracebacks_in

_MOST_SHARED = 8
"""Files that several ranks write to: the first that tells of errors counts. Judgement."""
_MOST_OWN = 64
"""Files that a single rank writes to, in which lines of the program are looked for. Judgement."""

_MOST_TRACEBACKS = 32
"""Of all files; judgement."""


class RankOutputs:
    """The files that the ranks' stdout and stderr go to; ``known``: rank → its files, of ranks that have ended."""

    def __init__(self, launcher: int | None, known: Mapping[int, tuple[LogFile, ...]]) -> None:
        self.launcher = launcher
        self.known = known
        self.shared: dict[LogFile, None] = {}
        """Files that ranks write to, and their launcher or hangdoc as well."""
        self.own: dict[LogFile, list[int]] = {}
        """The others, and the ranks that write to them."""

    def tail_of(self, target: RankTarget) -> LogTail | None:
        """The last lines of what this rank alone writes to."""
        found = logs.log_files(target.pid) if target.pid is not None else ()
        found = found or self.known.get(target.rank, ())
        # A file that the launcher or hangdoc also writes to has lines of all ranks, not only of this one.
        shared = {*logs.log_files(os.getpid()), *self._of_launcher(target)}
        if target.pid is not None:
            shared |= set(logs.watcher_logs(target.pid, dict(target.environment).get("HANGDOC_PROBE", "")))
        self.shared.update(dict.fromkeys(file for file in found if file in shared))
        own = tuple(file for file in found if file not in shared)
        for file in own:
            self.own.setdefault(file, []).append(target.rank)
        return logs.read_log(own)

    def errors(self) -> LogTail | None:
        """The errors in what several ranks write to one file."""
        return logs.error_lines(tuple(self.shared)[:_MOST_SHARED])

    def ends(self) -> list[Output]:
        """The end of each file, once, with the rank that it is of alone."""
        own = [(ranks[0] if len(ranks) == 1 else None, file) for file, ranks in self.own.items()]
        files = [*((None, file) for file in list(self.shared)[:_MOST_SHARED]), *own[:_MOST_OWN]]
        return [(clean(file.path), rank, logs.tail_lines(file)) for rank, file in files]

    def tracebacks(self) -> tuple[Traceback, ...]:
        """What the outputs tell of exceptions, with the lines that they went through."""
        return tuple(each for _, rank, lines in self.ends() for each in tracebacks_in(lines, rank))[-_MOST_TRACEBACKS:]

    def logged(self) -> Logged | None:
        """What torch's watchdog and debug modes say in the ends of all files; None where they say nothing."""
        texts = []
        for path, rank, ended in self.ends():
            lines = lines_of(path, enumerate((line.encode("utf-8", "replace") for line in ended), 1))
            known = [replace(line, rank=rank) if line.rank is None else line for line in lines]
            texts.append(ReadFile(ToldFile(path, "text", len(ended), 0), known))
        found, _ = facts_of(texts, time.gmtime().tm_year)
        return found if found.overdue or found.progress or found.behind or found.calls or found.barriers else None

    def _of_launcher(self, target: RankTarget) -> tuple[LogFile, ...]:
        return logs.log_files(self.launcher) if self.launcher is not None and self.launcher != target.pid else ()
