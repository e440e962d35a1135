"""Starts the helper, and lets the processes that the tests start find it: how the session begins and ends."""

from __future__ import annotations

import contextlib
import ctypes
import importlib
import os
import socket
import subprocess
import sys
from collections.abc import MutableMapping
from pathlib import Path

from hangdoc import interpreter
from hangdoc.pytest_plugin.link import Link, Message
from hangdoc.sidecar.launch import PROBE_PATH, PROBE_VARIABLE, child_environment

NO_RANK_VARIABLE = "HANGDOC_NO_RANK"
"""Pid of the process that runs the tests: its probe stays silent, for it may be rank 0 in one test and not in the
next. As in hangdoc/probe."""
_VARIABLES = ("PYTHONPATH", PROBE_VARIABLE, NO_RANK_VARIABLE)
_NOT_FOR_THE_HELPER = ("HANGDOC_", "COV_CORE_", "COVERAGE_PROCESS_")
"""coverage would measure it, and leave a file."""
_START_SECONDS = 20.0
_PR_SET_PTRACER = 0x59616D61  # <linux/prctl.h>


class NotStartedError(Exception):
    """There is no helper: it 'could not be started', or what else became of it."""


def start_helper(folder: str) -> tuple[Link, Message]:
    """The link to a new helper, and what it said first. Raises ``NotStartedError``."""
    ours, theirs = socket.socketpair()
    with theirs:
        words = (str(theirs.fileno()), str(os.getpid()))
        # Its parent ends at once, so that it is not a child of the tests.
        code = "import os\nif os.fork(): os._exit(0)\n"
        code += "from hangdoc.pytest_plugin import helper\nhelper.main(sys.argv[1:])"
        plain = interpreter.environment()
        try:
            subprocess.run(
                interpreter.command(code, *words),
                env={name: value for name, value in plain.items() if not name.startswith(_NOT_FOR_THE_HELPER)},
                cwd=folder,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                pass_fds=(theirs.fileno(),),
                start_new_session=True,
                check=True,
                timeout=_START_SECONDS,
            )
        except (OSError, subprocess.SubprocessError) as error:
            ours.close()
            raise NotStartedError(f"could not be started: {error}") from None
    link = Link(ours)
    answer = next(iter(link.receive(_START_SECONDS)), {})
    if "ready" not in answer:
        link.close()
        raise NotStartedError(answer.get("failed") or "did not answer")
    return link, answer


class Announced:
    """The helper is told to this process's torch, if it is still to come, and to all processes that the tests start."""

    def __init__(self, answer: Message, environment: MutableMapping[str, str]) -> None:
        """``answer``: what the helper said first; ``environment``: that of the processes."""
        child = child_environment(environment, Path(answer["ready"]))
        child[NO_RANK_VARIABLE] = str(os.getpid())
        self._environment = environment
        self._before = {name: environment.get(name) for name in _VARIABLES}
        environment.update({name: child[name] for name in _VARIABLES})
        sys.path.append(str(PROBE_PATH))
        if "torch" in sys.modules:
            # What `import torch` would have done: ranks that are forked from here have no import of their own.
            with contextlib.suppress(Exception):  # without it they show their stacks alone
                importlib.import_module("hangdoc_probe")._autoload()
        _permit(answer["pid"])

    def withdraw(self) -> None:
        """Leave everything as it was."""
        for name, value in self._before.items():
            if value is None:
                self._environment.pop(name, None)
            else:
                self._environment[name] = value
        with contextlib.suppress(ValueError):
            sys.path.remove(str(PROBE_PATH))


def _permit(helper: int) -> None:
    """Yama (ptrace_scope 1) lets only an ancestor look into a process unless the process names another."""
    try:
        prctl = ctypes.PyDLL(None).prctl
    except (OSError, AttributeError):
        return

    def permit() -> None:
        prctl(_PR_SET_PTRACER, ctypes.c_ulong(helper), 0, 0, 0)

    permit()
    os.register_at_fork(after_in_child=permit)
