"""``hangdoc capture [PID]``: what this host shows of a job, as a snapshot on stdout.

It runs where only the standard library and py-spy are: neither typer nor pydantic is imported, whose wheels fit one
minor version of Python each. Other hangdocs run it over ssh, srun or kubectl and join what the hosts show.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
import traceback
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import unquote_to_bytes

from hangdoc.errors import HangdocError, UsageError
from hangdoc.model.wording import harmless, name_ranks
from hangdoc.progress import working

if TYPE_CHECKING:
    from hangdoc.model.snapshot import JobSnapshot

_OUR_FAILURE = 125
_ON = ("1", "true", "yes", "on", "t", "y")
_EPILOG = """\
Exit status: 0 the snapshot is written, 2 usage, 3 could not look. Nothing else is written to stdout.

  hangdoc capture 4711 > node7.hangdoc     on every host, then, on any machine:
  hangdoc diagnose node*.hangdoc
"""


def main(arguments: Sequence[str]) -> int:
    """Capture, write, and return the exit status. Errors go to stderr in two lines."""
    try:
        return _run(_parser().parse_args(arguments))
    except SystemExit as end:  # argparse has said why
        return end.code if isinstance(end.code, int) else 2
    except HangdocError as error:
        words = "\n  ".join(harmless(part) for part in (error.what, error.remedy) if part)
        return _fail(f"hangdoc: {words}\n", error.exit_status)
    except KeyboardInterrupt:
        return 128 + signal.SIGINT
    except BrokenPipeError:
        return 128 + signal.SIGPIPE
    except Exception:  # the exit status 1 would mean a diagnosed hang
        text = f"{traceback.format_exc()}hangdoc: this is a bug in hangdoc; please report the lines above\n"
        return _fail(text, _OUR_FAILURE)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        "hangdoc capture",
        description="Write what this host shows of a job to stdout, as one snapshot. The job is only read.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument(
        "pid", nargs="?", type=_pid, metavar="PID", help="any process of the job; without it and --job, the only job"
    )
    parser.add_argument(
        "--job",
        metavar="NAME=VALUE,...",
        help="the job by its ranks' environment, as it is on all its hosts: MASTER_ADDR=node0,MASTER_PORT=29500",
    )
    parser.add_argument(
        "--inject",
        action="store_true",
        default=_is_on("HANGDOC_INJECT"),
        help="also fetch the call history from inside the waiting ranks, with gdb",
    )
    parser.add_argument(
        "--ask-dumps",
        action="store_true",
        default=_is_on("HANGDOC_ASK_DUMPS"),
        help="also have PyTorch write the dumps of its flight recorders anew, over the pipes that"
        " TORCH_NCCL_DEBUG_INFO_PIPE_FILE has set up, and read them",
    )
    parser.add_argument(
        "--no-source",
        action="store_true",
        default=_is_on("HANGDOC_NO_SOURCE"),
        help="read no source code of the job",
    )
    # Three of collect.
    parser.add_argument("--path", action="append", default=[], help=argparse.SUPPRESS)
    parser.add_argument("--seen", action="append", default=[], help=argparse.SUPPRESS)
    parser.add_argument("--only-paths", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--relay", metavar="TOKEN", help=argparse.SUPPRESS)  # of attach, where it asks many hosts
    return parser


def _pid(text: str) -> int:
    if not text.isdecimal() or not 0 < int(text) < 1 << 31:
        raise argparse.ArgumentTypeError(f"{text!r} is no process id")
    return int(text)


def _is_on(variable: str) -> bool:
    return os.environ.get(variable, "").lower() in _ON


def _run(options: argparse.Namespace) -> int:
    if options.pid is not None and options.job is not None:
        raise UsageError("a pid and --job name the job twice", "Give one of them.")
    if options.path and "SUDO_UID" in os.environ:
        raise UsageError(
            "hangdoc reads no folders that somebody names under sudo",
            "Whoever may only capture as root must not come to read files as root: collect them as their owner.",
        )
    if sys.stdout is None or os.isatty(1):
        raise UsageError(
            "a snapshot is no text for a terminal",
            "Write it to a file: hangdoc capture PID > HOST.hangdoc; or see the verdict: hangdoc attach PID.",
        )
    with _OwnStdout() as output:
        from hangdoc.capture.attach import attach_by_key, capture_found, find_job
        from hangdoc.capture.collect import Local, mark_of, packed, parts_here
        from hangdoc.capture.find.job_key import parse_key
        from hangdoc.capture.request import CaptureOptions
        from hangdoc.model.encode import snapshot_to_bytes
        from hangdoc.model.masked import masked

        chosen = CaptureOptions(
            inject=options.inject,
            ask_dumps=options.ask_dumps,
            native=True,
            no_source=options.no_source,
            paths=tuple(os.fsdecode(unquote_to_bytes(path)) for path in options.path),
            seen=tuple(options.seen),
            live=not options.only_paths,
        )
        taken: list[JobSnapshot] = []
        variables = parse_key(options.job) if options.job is not None else {}

        def live() -> JobSnapshot:
            found = capture_found(*find_job(options.pid), chosen) if options.pid else attach_by_key(variables, chosen)
            taken.append(found)
            return found

        def own() -> bytes:
            if not chosen.paths:
                return snapshot_to_bytes(live())
            paths = [path for path in map(Path, chosen.paths) if mark_of(path) not in chosen.seen]
            local = Local(paths, live if chosen.live else None, no_source=chosen.no_source)
            return snapshot_to_bytes(masked(packed(parts_here(local))))

        if options.relay is None:
            with working("looking twice at the job"):
                data = own()
        else:
            from hangdoc.capture.relay import hand_over

            data = hand_over(options.relay, chosen, variables, own)
        output.write(data)
    for snapshot in taken:
        seen = [rank.rank for rank in snapshot.ranks if rank.process is not None]
        host = snapshot.hosts[0].name if snapshot.hosts else "this host"
        _say(f"hangdoc: captured {name_ranks(seen)} on {host}, {len(data)} bytes\n")
    return 0


class _OwnStdout:
    """Stdout for the snapshot alone: what anything else writes there meanwhile goes to stderr."""

    def __enter__(self) -> _OwnStdout:
        self._descriptor = os.dup(1)
        os.dup2(2, 1)
        return self

    def __exit__(self, *error: object) -> None:
        os.dup2(self._descriptor, 1)
        os.close(self._descriptor)

    def write(self, data: bytes) -> None:
        """Write all of ``data``; nothing is written before it is complete."""
        rest = memoryview(data)
        while rest:
            rest = rest[os.write(self._descriptor, rest) :]


def _fail(text: str, status: int) -> int:
    from hangdoc.model.masking import mask_text

    _say(mask_text(text))
    return status


def _say(text: str) -> None:
    try:
        sys.stderr.write(text)
        sys.stderr.flush()
    except (OSError, ValueError, AttributeError):
        pass  # stderr is closed
