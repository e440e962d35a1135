"""What a watch says to its user: a start line, the diagnosis of each stall, and what became of the job."""

from __future__ import annotations

import contextlib
import os
import select
import shlex
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from hangdoc.early_warning import FIRST_LOOK, LookAhead
from hangdoc.errors import HangdocError
from hangdoc.kept_files import FAILURES, KeptFiles, again, one_line
from hangdoc.model.masking import mask_text, mask_words
from hangdoc.model.token_forms import HIDDEN
from hangdoc.model.wording import harmless, name_duration, name_ranks
from hangdoc.sidecar.hang_command import HangCommand, variables
from hangdoc.sidecar.listener import Conclusion, RankToEnd
from hangdoc.sidecar.options import WatchOptions
from hangdoc.sidecar.run_directory import RunDirectory

if TYPE_CHECKING:
    from hangdoc.model.diagnosis import Diagnosis
    from hangdoc.model.snapshot import JobSnapshot
    from hangdoc.sidecar.logs.stream import LogStream

_SAY_SECONDS = 2.0
"""How long a terminal or pipe that takes nothing may delay the watch, for each message. Judgement."""
_LONGEST_COMMAND = 160


class Announcer:
    """The sidecar's listener; writes to stderr and files, never to the job's stdout. Nothing here raises."""

    def __init__(self, command: tuple[str, ...], options: WatchOptions, run_directory: RunDirectory) -> None:
        self.run_directory = run_directory
        self._command = command
        self._options = options
        self._said: tuple[object, ...] | None = None
        self._last: tuple[Diagnosis | None, Path | None] = (None, None)
        """The latest diagnosis, and the path of its snapshot; each None if there is none."""
        self._heard = ""
        """What was printed of another host's verdict, if that came after our own latest one."""
        self._end: RankToEnd | None = None
        """The rank to end for a restart, by the latest diagnosis."""
        self._hang_is_new = False
        """The report of a hang was printed, and nothing has been done after it."""
        self._hang_command = HangCommand(options.on_hang_exec, _say_line) if options.on_hang_exec else None
        self._logs: LogStream | None = None
        self._files = KeptFiles(options, run_directory, say)
        self._unseen: tuple[int, ...] = ()
        self._spared = False
        self._spared_for = ""
        self._ahead = LookAhead(FIRST_LOOK if options.stall_after is None else max(5.0, 2 * options.stall_after))

    def on_start(self, pid: int) -> None:
        """Say that the watch began."""
        if not self._options.quiet:
            command = harmless(" ".join(map(_quoted, mask_words(self._command))))
            if len(command) > _LONGEST_COMMAND:
                command = command[: _LONGEST_COMMAND - 1] + "…"
            say(f"hangdoc: watching pid {pid}, {command}\n")

        if self._logs is not None:
            where = self.run_directory.path / self._logs.path.name
            notes = () if self._options.quiet else (f"{self._logs.contents} in {where}",)
            for note in (*notes, *self._logs.notes):
                _say_line(note)

    def open_logs(self, environment: Mapping[str, str]) -> LogStream:
        """The stream of what the command and its ranks are going to write. Raises ``HangdocError``."""
        from hangdoc.report.terminal import shown_by
        from hangdoc.sidecar.logs.stream import LogStream, Look

        look = Look(shown_by(sys.stdout).color, sys.stdout.encoding) if sys.stdout is not None else Look(output=-1)
        self._logs = LogStream.open(self.run_directory.make(), self._command, environment, look)
        return self._logs

    def on_no_stream(self, why: str) -> None:
        """Say that the logs are not shown any more."""
        _say_line(f"the logs are no longer shown ({why}), but still written")

    def on_no_probes(self, why: HangdocError) -> None:
        """Say that the ranks will be seen only from outside."""
        say(f"hangdoc: {harmless(mask_text(why.what))}: the job runs without call histories ({harmless(why.remedy)})\n")

    def on_nested(self, watcher: int) -> None:
        """Say that the outer watch does the work."""
        say(f"hangdoc: pid {watcher} watches this job already, so this hangdoc steps aside\n")

    def on_stall(self, snapshot: JobSnapshot, number: int) -> str:
        """Diagnose, print the diagnosis if it is new, save the snapshot. Returns the outcome."""
        return self._conclude(snapshot, f"stall-{number}")

    def may_end(self) -> bool:
        """False if the verdict blames ranks that could not be seen: they, and the ranks here, may be fine.

        Prints that once.
        """
        if self._unseen and not self._spared:
            self._spared = True
            whom = name_ranks(self._unseen)
            say(f"hangdoc: does not end the job, although --on-hang abort asks: {whom} could not be seen from here\n")
        return not self._unseen

    def doubt(self, snapshot: JobSnapshot) -> str:
        """What the snapshot shows that does not fit a hang."""
        from hangdoc.own_view import doubt

        return doubt(snapshot)

    def on_spared(self, why: str) -> None:
        """Print once why nothing is ended."""
        if why != self._spared_for:
            self._spared_for = why
            _say_line(f"ends nothing yet, although --on-hang {self._options.on_hang} asks: {why}")

    def conclusion(self) -> Conclusion | None:
        """What the last snapshot came to; None if it could not be diagnosed."""
        diagnosis, path = self._last
        if diagnosis is None:
            return None
        kept = str(path.absolute()) if path is not None else ""
        said = (diagnosis.outcome, diagnosis.verdict, kept)
        news = repr(_news(diagnosis))
        return Conclusion(*said, may_end=not self._unseen, end=self._end, fix=diagnosis.fix, news=news)

    def after_report(self) -> None:
        """Run the user's command for a hang whose report was just printed."""
        diagnosis, path = self._last
        if self._hang_command is None or not self._hang_is_new or diagnosis is None:
            return
        self._hang_is_new = False
        from hangdoc.report import document

        try:
            text = document.render(diagnosis).encode()
            self._hang_command.start(text, variables(diagnosis, path))
        except Exception as error:  # the command is a bonus: a failure in here must not cost the watch
            _say_line(f"--on-hang-exec: the command could not be started: {error}")

    def wait_for_command(self) -> None:
        """Wait, in bounded time, for the user's command to end."""
        if self._hang_command is not None:
            self._hang_command.wait()

    def on_verdict(self, conclusion: Conclusion, host: str, hosts: int) -> None:
        """Print the verdict that another host's watch has come to, if it is new, and where the report is."""
        if conclusion.outcome not in (*FAILURES, "blind"):
            return
        from hangdoc.report.terminal import heard_for

        where = f"; on that host: {again(Path(conclusion.path))}" if conclusion.path else ""
        sentence, fix = mask_text(conclusion.sentence), mask_text(conclusion.fix)
        told = heard_for(sys.stderr, conclusion.outcome, sentence, fix, hosts, color=self._options.color)
        self._heard = f"\n{told}"
        self._heard += harmless(f"hangdoc: the watch on {host} has the whole report{where}") + "\n"
        news = (conclusion.outcome, conclusion.news or conclusion.sentence)
        if news != self._said:
            self._said = news
            say(self._heard)

    def on_alone(self, why: str) -> None:
        """Say that a report is not of all hosts."""
        say(f"hangdoc: {harmless(mask_text(why))}\n")

    def on_progress(self, sockets: Mapping[int, Path], now: float) -> None:
        """Run an early look now and then; print once that ranks have diverged."""
        try:
            news = self._ahead.tick(sockets, now)
        except Exception:  # an early warning is a bonus: a failure in it must not end the watch
            news = None
        if news:
            say(f"hangdoc ! {harmless(mask_text(news))}\n")

    def close(self) -> None:
        """End an early look and a command of the user's that still run."""
        self._ahead.close()
        if self._logs is not None:
            self._logs.close()
        self.run_directory.close()
        if self._hang_command is not None:
            self._hang_command.close()

    def on_resume(self, seconds: float) -> None:
        """Say that the job goes on."""
        if self._said is not None:
            say(f"hangdoc: the job moves again after {name_duration(seconds)}\n")
        self._said = None
        self._spared_for = ""

    def on_change(self, seconds: float) -> None:
        """Take back when a job that was told to be slow counts as a hang."""
        if self._said is not None and self._said[0] == "slow":
            after = f"after {name_duration(seconds)} without progress"
            _say_line(f"a rank or a port of the job has come or gone {after}: that time is counted anew")

    def on_end(self, snapshot: JobSnapshot) -> None:
        """Diagnose a job that has ended. A failure that was told before is told again: tracebacks hide it."""
        before = self._said
        if self._conclude(snapshot, "end") in ("hang", "crashed") and self._said == before:
            self._recall()

    def on_abort(self, survivors: Sequence[int]) -> None:
        """Print that the job was ended, and the answer again: the job's last output may have scrolled it away."""
        say("hangdoc: ended the hung job, as --on-hang abort asks\n")
        if survivors:
            pids = ", ".join(map(str, survivors))
            say(
                f"hangdoc: could not end pid {pids} (uninterruptible, or another user's): "
                f"see `ps -o stat,wchan {pids}`\n"
            )
        self._recall()

    def on_given_up(self) -> None:
        """Print the answer again, below the tracebacks of a job that was interrupted or has failed."""
        self._recall()

    def _recall(self) -> None:
        if self._heard:
            say(self._heard)
            return
        diagnosis, path = self._last
        if diagnosis is not None:
            from hangdoc.report.terminal import recall_for

            self._say_whole(f"\n{recall_for(sys.stderr, diagnosis, color=self._options.color)}")
        if path is not None:
            say(f"hangdoc: show it again: {again(path)}\n")

    def on_restart(self, end: RankToEnd, *, here: bool) -> None:
        """Print who ends which rank."""
        rank = f"rank {end.rank} (pid {end.pid}{'' if here else f' on {end.host}'})"
        who = "ended" if here else f"the watch on {end.host} ends"
        say(harmless(f"hangdoc: {who} {rank}, as --on-hang restart asks; its launcher starts all ranks anew") + "\n")

    def on_no_restart(self, why: str) -> None:
        """Print why the ranks are not started anew."""
        say(f"hangdoc: no restart, although --on-hang restart asks: {harmless(why)}\n")

    def on_restarted(self) -> None:
        """Print that there are new ranks. A hang of theirs is told even if it is the same again."""
        say("hangdoc: the launcher has started new ranks\n")
        self._said = None

    def on_workers_restarted(self, snapshot: JobSnapshot | None, restart: int, most: int | None) -> None:
        """Print one line: why the ranks had ended, and that there are new ones. Their hangs are told anew."""
        from hangdoc.diagnosis import diagnose

        self._said = None
        why = "none of the ranks here had failed"
        try:
            found = diagnose(snapshot) if snapshot is not None else None
            if found is not None and found.culprits:
                why = found.verdict[:1].lower() + found.verdict[1:].rstrip(".")
        except Exception as error:  # as of any diagnosis
            why = f"could not diagnose the end of the ranks: {type(error).__name__}: {error}"
        _say_line(f"{why}; torchrun restarted the workers" + (f", {restart} of {most}" if most else ""))

    def on_blind(self, why: str) -> None:
        """Say that the watch has failed and the job runs on."""
        say(f"hangdoc: watcher is blind: {mask_text(why)}; the job runs on\n")

    def _conclude(self, snapshot: JobSnapshot, name: str) -> str:
        from hangdoc.diagnosis import diagnose

        self._heard = ""
        try:
            diagnosis = diagnose(snapshot)
            printed = self._print(diagnosis, snapshot)
        except Exception as error:  # a bug in hangdoc must not cost the snapshot or the rest of the watch
            failure = mask_text(f"{type(error).__name__}: {error}")
            self._last, self._end, self._hang_is_new = (None, None), None, False
            news = self._said != (failure,)
            self._said = (failure,)
            if news:
                say(f"hangdoc: could not diagnose: {harmless(failure)}\n")
            self._last = None, self._files.keep(snapshot, None, name, tell=news)
            return "blind"
        blamed = frozenset(diagnosis.culprits)
        self._unseen = tuple(rank for rank in diagnosis.unseen if rank in blamed or not blamed)
        self._hang_is_new = printed and diagnosis.outcome == "hang"
        if diagnosis.outcome in (*FAILURES, "blind"):
            self._last = diagnosis, None
            self._last = diagnosis, self._files.keep(snapshot, diagnosis, name, tell=printed)
        self._choose_end(diagnosis, snapshot)
        return diagnosis.outcome

    def _choose_end(self, diagnosis: Diagnosis, snapshot: JobSnapshot) -> None:
        """Which rank to end, where the user asked for a restart; prints why none, once for each hang."""
        from hangdoc.sidecar.restart import rank_to_end

        self._end = None
        if self._options.on_hang != "restart" or diagnosis.outcome != "hang":
            return
        found = rank_to_end(diagnosis, snapshot)
        if isinstance(found, RankToEnd):
            self._end = found
        elif self._hang_is_new:
            self.on_no_restart(found)

    def _print(self, diagnosis: Diagnosis, snapshot: JobSnapshot) -> bool:
        from hangdoc.report.terminal import render_for

        news = _news(diagnosis)
        if diagnosis.outcome == "healthy" or news == self._said:
            return False
        self._said = news
        color = self._options.color
        text = f"\n{render_for(sys.stderr, diagnosis, color=color, verbose=self._options.verbose)}"
        if self._logs is not None:
            from hangdoc.report.last_output import last_output_for

            text += last_output_for(sys.stderr, diagnosis, snapshot, color=color)
        self._say_whole(text)
        self._tell_github(diagnosis)
        return True

    def _say_whole(self, text: str) -> None:
        """Print lines that belong together: no lines of ranks come in between."""
        with self._logs.held() if self._logs is not None else contextlib.nullcontext():
            say(text)

    @staticmethod
    def _tell_github(diagnosis: Diagnosis) -> None:
        from hangdoc.report import github

        try:
            github.tell(diagnosis, say)
        except Exception as error:  # a bonus: a failure in it must cost neither the report nor the snapshot
            say(f"hangdoc: GitHub was not told: {one_line(error)}\n")


def _news(diagnosis: Diagnosis) -> tuple[object, ...]:
    """What a later diagnosis must differ in to be told again."""
    return diagnosis.outcome, diagnosis.culprits, diagnosis.cause and diagnosis.cause.code


def _quoted(word: str) -> str:
    """The word quoted for a shell. The placeholder of a hidden secret needs no quotes."""
    return word if shlex.quote(plain := word.replace(HIDDEN, "_")) == plain else shlex.quote(word)


def say(text: str) -> None:
    """Write all of ``text`` to stderr, or give up after ``_SAY_SECONDS``: a stopped reader must not stop the watch."""
    stream = sys.stderr
    if stream is None:
        return
    try:
        descriptor = stream.fileno()
    except (OSError, ValueError, AttributeError):
        stream.write(text)  # an in-memory stream of a program that uses hangdoc as a library
        return
    # Not through Python's buffer: its lock, held by a blocked daemon thread, would abort the interpreter's exit.
    data = memoryview(text.encode(stream.encoding or "utf-8", "backslashreplace"))
    deadline = time.monotonic() + _SAY_SECONDS
    try:
        while data and (left := deadline - time.monotonic()) > 0:
            if select.select([], [descriptor], [], left)[1]:
                data = data[os.write(descriptor, data[: select.PIPE_BUF]) :]
    except (OSError, ValueError):
        pass


def _say_line(text: str) -> None:
    say(f"hangdoc: {harmless(mask_text(text))}\n")
