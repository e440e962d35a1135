"""What a watch keeps of each stall: its snapshot and reports in the run directory, and the files of ``--report``."""

from __future__ import annotations

import shlex
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from hangdoc.errors import HangdocError, WatcherFailed
from hangdoc.model.masking import mask_text
from hangdoc.model.wording import harmless
from hangdoc.sidecar.options import WatchOptions
from hangdoc.sidecar.run_directory import DEFAULT_PARENT, RunDirectory

if TYPE_CHECKING:
    from hangdoc.model.diagnosis import Diagnosis
    from hangdoc.model.snapshot import JobSnapshot

FAILURES = ("hang", "slow", "crashed")
"""Outcomes that are written to the files of ``--report``."""


def choose_run_directory(options: WatchOptions, run_id: str) -> RunDirectory:
    """The directory that the user chose; else ``.hangdoc/<run id>``; else, if that is not writable, a temporary one.

    Raises ``WatcherFailed`` if the chosen one cannot be used, ``UsageError`` for an unknown report format.
    """
    if options.reports:
        from hangdoc.report import check_suffix

        for report in options.reports:
            check_suffix(report)
    chosen = RunDirectory(options.run_dir or Path(DEFAULT_PARENT) / run_id)
    try:
        chosen.check()
    except WatcherFailed:
        if options.run_dir is not None:
            raise
        try:
            chosen = RunDirectory(Path(tempfile.gettempdir()) / f"hangdoc-{run_id}")
        except OSError:  # no place for temporary files: reported when there is something to keep
            chosen = RunDirectory(Path("/tmp") / f"hangdoc-{run_id}")  # noqa: S108 - made with mode 0700
    return chosen


class KeptFiles:
    """The files of one watch. Nothing here raises for a disk that refuses: that is said."""

    def __init__(self, options: WatchOptions, run_directory: RunDirectory, say: Callable[[str], None]) -> None:
        """``say``: prints lines for the user."""
        self._reports = options.reports
        self._run_directory = run_directory
        self._say = say
        self._keep_runs = options.keep
        """How many runs are to stay; None once the others were removed, or where all stay."""
        self._failed = False
        """A hang or a crash was diagnosed, and written to every ``--report`` file."""

    def keep(self, snapshot: JobSnapshot, diagnosis: Diagnosis | None, name: str, *, tell: bool) -> Path | None:
        """Write all files of a stall; where the snapshot is, or None if it is lost. ``tell``: say where it is."""
        from hangdoc.model.codec import dump_snapshot, write_atomically
        from hangdoc.report import document, terminal

        kept: Path | None = None
        page = None
        try:
            folder = self._run_directory.make()
            self._prune()
            path = folder / f"{name}.hangdoc"
            dump_snapshot(snapshot, path)
            kept = path
            if diagnosis is not None:
                write_atomically(folder / f"{name}.json", document.render(diagnosis).encode(), mode=0o600)
                text = terminal.render(diagnosis, verbose=True)
                write_atomically(folder / f"{name}.txt", text.encode("utf-8", "backslashreplace"), mode=0o600)
                page = self._page(diagnosis, snapshot)
                if page is not None:
                    write_atomically(folder / f"{name}.html", page.encode("utf-8", "backslashreplace"), mode=0o600)
            if tell:
                self._say(f"hangdoc: saved. Show it again: {again(path)}\n")
                if _is_a_part(snapshot):
                    others = "FILE_OF_EACH_OTHER_HOST"
                    self._say(f"hangdoc: each host keeps its own part; all together: {again(path)} {others}\n")
        except (HangdocError, OSError) as error:
            self._say(f"hangdoc: the snapshot is lost: {one_line(error)}\n")
        if diagnosis is not None:
            self._write_reports(diagnosis, snapshot, page)
        return kept

    def _write_reports(self, diagnosis: Diagnosis, snapshot: JobSnapshot, page: str | None) -> None:
        """The files that the user asked for. ``page``: the page, where it was made for the run directory."""
        from hangdoc.report import write

        if diagnosis.outcome not in FAILURES or (diagnosis.outcome == "slow" and self._failed):
            return  # a report of a hang is worth more than a later one of a slow wait
        self._failed |= diagnosis.outcome != "slow"
        for report in self._reports:
            try:
                write(diagnosis, report, snapshot, page=page)
            except (HangdocError, OSError) as error:  # noqa: PERF203 - one failed report must not stop the next
                self._say(f"hangdoc: no report: {one_line(error)}\n")

    def _prune(self) -> None:
        """Remove older runs, where the user asked for that."""
        keep, self._keep_runs = self._keep_runs, None
        if keep is None:
            return
        from hangdoc.sidecar.old_runs import prune

        try:
            prune(self._run_directory.path, keep)
        except OSError as error:
            self._say(f"hangdoc: older runs were not removed: {one_line(error)}\n")

    def _page(self, diagnosis: Diagnosis, snapshot: JobSnapshot) -> str | None:
        """The page; None if it could not be made."""
        from hangdoc.report import page

        try:
            return page.render(diagnosis, snapshot)
        except Exception as error:  # the page can be made again from the snapshot, which is kept already
            self._say(f"hangdoc: no page: {one_line(error)}\n")
            return None


def again(path: Path) -> str:
    """The command that shows a snapshot again."""
    return harmless(f"hangdoc diagnose {shlex.quote(str(path))}")


def one_line(error: Exception) -> str:
    """What went wrong, for a line of the terminal."""
    parts = (part.rstrip(".") for part in str(error).splitlines() if part.strip())
    return mask_text(". ".join(" ".join(part.split()) for part in parts))


def _is_a_part(snapshot: JobSnapshot) -> bool:
    """True if ranks run on hosts whose watches were not met, or have fallen silent: they keep files of their own."""
    from hangdoc.model.same_job import HOSTS, OTHER_HOSTS

    unseen = any(rank.process is None and rank.exit is None and rank.identity == "elsewhere" for rank in snapshot.ranks)
    notes = {note.what for note in snapshot.unavailable}
    return OTHER_HOSTS in notes or (unseen and HOSTS in notes)
