"""The command line: one file per command, imported when it is asked for. Parsing only; the API does the work.

A command's module holds a function of the command's name, or a ``typer.Typer`` named ``app``.
"""

from __future__ import annotations

import errno
import os
import signal
import sys
import traceback
from importlib import import_module
from pathlib import Path
from typing import Any

import typer
import typer.core
import typer.main

from hangdoc import config
from hangdoc.cli.examples import epilog
from hangdoc.errors import HangdocError, UsageError

COMMANDS = {
    "watch": "Run a job and say which rank hangs it, where and why.",
    "attach": "Diagnose a job that is frozen now.",
    "capture": "Write what this host shows of a job, for another host.",
    "collect": "Put what is left of a job into one file, to carry it off.",
    "diagnose": "Diagnose a saved snapshot, or flight-recorder dumps.",
    "stats": "Say who comes late to a job's collectives.",
    "explain": "Explain a cause and how to fix it.",
    "schema": "Print the JSON schema of a diagnosis document.",
    "guide": "Read the guide, also without a network.",
    "scenario": "Show and run reproductions of real hangs.",
    "doctor": "Check whether hangdoc can work here.",
}
"""Every command and its line in the list: whole sentences that fit 80 columns."""
OUR_FAILURE = 125
"""Exit status of a hangdoc that failed itself, as with timeout(1) and env(1)."""

# By version, typer has its own copy of click or uses click; typer's own names are the same in both.
_ParserError: Any = typer.BadParameter.__mro__[2]


_SETTINGS: dict[str, Any] = {
    "add_completion": False,
    "rich_markup_mode": None,
    "pretty_exceptions_enable": False,
    "context_settings": {"help_option_names": ["-h", "--help"]},
}


class _Commands(typer.core.TyperGroup):
    """Imports a command's module only if that command runs, or the help lists it."""

    def list_commands(self, ctx: Any) -> list[str]:  # noqa: ARG002
        here = Path(__file__).parent
        return [name for name in COMMANDS if (here / f"{name}.py").exists()]

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        if cmd_name not in self.list_commands(ctx):
            return None
        module = import_module(f"hangdoc.cli.{cmd_name}")
        application = getattr(module, "app", None)
        if application is None:
            application = typer.Typer(**_SETTINGS)
            application.command()(getattr(module, cmd_name))
        command: Any = typer.main.get_command(application)
        command.name = cmd_name
        command.short_help = COMMANDS[cmd_name]
        command.epilog = epilog(cmd_name)
        for name, below in getattr(command, "commands", {}).items():
            below.epilog = epilog(f"{cmd_name} {name}")
        run = command.invoke

        def invoke(context: Any) -> Any:
            # The options are known now, and neither help nor version was asked for.
            if isinstance(context.default_map, _FileOptions):
                context.default_map.settle()
            return run(context)

        command.invoke = invoke
        return command

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        if args and not args[0].startswith("-") and args[0] not in self.list_commands(ctx):
            from difflib import get_close_matches

            close = get_close_matches(args[0], COMMANDS, 1)
            ctx.fail(f"No such command {args[0]!r}." + (f" Did you mean {close[0]}?" if close else ""))
        return super().resolve_command(ctx, args)


class _FileOptions(dict[str, Any]):
    """The options of one command from pyproject.toml, read when the command first asks for one.

    An error in the file is reported after the command line was parsed, and only if the command uses the file.
    """

    def __init__(self, command: str) -> None:
        super().__init__()
        self._command = command
        self._lines: list[str] = []
        self._error: UsageError | None = None
        self._read = False

    def get(self, key: str, default: Any = None) -> Any:
        """The value of an option; ``default`` if the file does not set it."""
        if key in config.OPTIONS and not self._read:
            self._read = True
            self._load()
        return super().get(key, default)

    def _load(self) -> None:
        try:
            found = config.from_file(Path.cwd(), self._lines.append)
        except UsageError as error:
            self._error = error
            return
        except OSError:  # the working directory was deleted
            return
        kept = config.NOT_BY_ATTACH if self._command in ("attach", "collect") else frozenset()
        unused = [name.replace("_", "-") for name in found if name in kept - config.ONLY_BY_WATCH]
        if unused:
            names = ", ".join(unused)
            self._lines.append(f"{self._command} takes {names} from its command line alone, not from pyproject.toml")
        self.update({name: value for name, value in found.items() if name not in kept})

    def settle(self) -> None:
        """Print what was ignored and raise the file's error; `watch` prints the error, and runs the job in any case."""
        from hangdoc.announce import say
        from hangdoc.model.wording import harmless

        for line in self._lines:
            say(f"hangdoc: {harmless(line)}\n")
        if self._error is not None:
            if self._command != "watch":
                raise self._error
            say(f"hangdoc: {harmless(self._error.what)} ({harmless(self._error.remedy)}); watching without it\n")


app = typer.Typer(cls=_Commands, no_args_is_help=True, epilog=epilog(""), **{**_SETTINGS, "add_completion": True})


def _show_version(wanted: bool) -> None:
    if wanted:
        import hangdoc

        typer.echo(f"hangdoc {hangdoc.__version__}")
        raise typer.Exit


@app.callback()
def _root(
    version: bool = typer.Option(
        False, "--version", help="Show the version and exit.", callback=_show_version, is_eager=True
    ),
) -> None:
    """Names the rank that froze your distributed PyTorch job: which line, why, and how to fix it."""


def main(arguments: list[str] | None = None) -> int:
    """Run the command line and return its exit status. A ``HangdocError`` is printed to stderr in two lines."""
    arguments = sys.argv[1:] if arguments is None else arguments
    # `watch` has no exit status for usage errors: 2 could be the command's own.
    watching = arguments[:1] == ["watch"]
    try:
        # Every command takes the options it knows from the one table.
        status = app(
            arguments,
            prog_name="hangdoc",
            standalone_mode=False,
            default_map={command: _FileOptions(command) for command in COMMANDS},
        )
    except _ParserError as error:
        error.show()
        return OUR_FAILURE if watching else 2
    except HangdocError as error:
        _print_error(f"hangdoc: {_shown(error)}\n")
        return OUR_FAILURE if watching and error.exit_status == 2 else error.exit_status
    except (KeyboardInterrupt, typer.Abort):
        return 128 + signal.SIGINT
    except BrokenPipeError:
        # The reader of our output has gone; nothing more may be written at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 128 + signal.SIGPIPE
    except Exception as error:
        if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT):
            _print_error(f"hangdoc: cannot write: {error.strerror}\n  Free some space, or write to another disk.\n")
            # What is left of it may not be written at exit either.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            return OUR_FAILURE
        _print_error(
            f"{_masked(traceback.format_exc())}hangdoc: this is a bug in hangdoc; please report the lines above\n"
        )
        return OUR_FAILURE
    return status if isinstance(status, int) else 0


def _shown(error: HangdocError) -> str:
    """What happened and what to do, a line each: both may quote names of files and words of a job."""
    from hangdoc.model.wording import harmless

    return "\n  ".join(harmless(_masked(part)) for part in (error.what, error.remedy) if part)


def _masked(text: str) -> str:
    from hangdoc.model.masking import mask_text

    return mask_text(text)


def _print_error(text: str) -> None:
    try:
        sys.stderr.write(text)
        sys.stderr.flush()
    except (OSError, ValueError, AttributeError):
        pass  # stderr is closed
