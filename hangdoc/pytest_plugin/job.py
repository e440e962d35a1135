"""The fixture ``hangdoc_job``: ranks of a function or of a script under watch, and the diagnosis of their hang."""

from __future__ import annotations

import ast
import inspect
import os
import shutil
import sys
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from hangdoc import api, interpreter
from hangdoc.errors import UsageError
from hangdoc.model.diagnosis import Diagnosis
from hangdoc.model.kinds import Outcome
from hangdoc.pytest_plugin.session import NAME, Session
from hangdoc.scenarios import run_to_end
from hangdoc.sidecar.run import ABORTED

_CALLER = Path(__file__).with_name("call_function.py")
_MOST_OUTPUT = 200_000
_LAUNCHES = ("torchrun", "python")


class RunJob:
    """A callable; each call is one job."""

    def __init__(self, config: pytest.Config, folder: Path) -> None:
        self._session = config.pluginmanager.get_plugin(NAME)
        self._folder = folder

    def __call__(
        self,
        target: Callable[..., object] | str | os.PathLike[str],
        *arguments: object,
        ranks: int = 2,
        launch: str = "torchrun",
        stall_after: float = 5.0,
        give_up_after: float = 30.0,
        timeout: float = 120.0,
        environment: Mapping[str, str] | None = None,
    ) -> Diagnosis:
        """Run ``target`` as ``ranks`` processes until it ends or hangs; then end it. Returns what hangdoc says of it.

        ``target``: a function of a module, or the path of a script. ``arguments``: its parameters, for a function plain
        values (numbers, text, lists, dicts …), for a script words. ``launch``: 'torchrun', or 'python' for a script
        that starts its ranks itself, as Lightning Fabric does. A job that ends with status 0 is 'healthy', one of which
        a rank fails is 'crashed'. Times in seconds; ``give_up_after``: from then on a rank that sleeps or polls counts
        as hung. What the job prints is printed by the test. ``environment``: further variables.

        The test fails if the job neither ends nor hangs within ``timeout``. Raises ``UsageError`` for a function or
        arguments that no other process can have.
        """
        words = _command(target, arguments, ranks, launch)
        folder = Path(tempfile.mkdtemp(prefix="hangdoc-job-", dir=self._folder))
        run_dir, output = folder / "run", folder / "output"
        options = ["--stall-after", str(stall_after), "--give-up-after", str(give_up_after), "--on-hang", "abort"]
        options += ["--run-dir", str(run_dir), "--quiet", "--meet", "off"]
        watch = interpreter.command("from hangdoc.__main__ import main; sys.exit(main())", "watch", *options, "--")
        session = self._session if isinstance(self._session, Session) else None
        if session is not None:
            session.leave_alone()  # the job has a watch of its own, and its hang is wanted
        try:
            with output.open("wb") as file:
                status = run_to_end([*watch, *words], _environment(environment or {}), timeout, file)
        finally:
            if session is not None:
                session.return_to()
            sys.stdout.write(_read(output))
        return _result(status, run_dir, timeout)


def _command(target: object, arguments: tuple[object, ...], ranks: int, launch: str) -> list[str]:
    """The command line that starts the ranks. Raises ``UsageError``."""
    if launch not in _LAUNCHES:
        raise UsageError(f"hangdoc_job: launch={launch!r}", f"It is one of {', '.join(_LAUNCHES)}.")
    if launch == "python":
        return [sys.executable, *_script(target, arguments)]
    beside = os.pathsep.join((str(Path(sys.executable).parent), os.environ.get("PATH", "")))
    torchrun = shutil.which("torchrun", path=beside)
    launcher = [torchrun] if torchrun is not None else [sys.executable, "-m", "torch.distributed.run"]
    return [*launcher, "--standalone", "--nproc-per-node", str(ranks), *_script(target, arguments)]


def _script(target: object, arguments: tuple[object, ...]) -> list[str]:
    if not callable(target):
        return [os.path.abspath(os.fspath(target)), *map(str, arguments)]  # type: ignore[call-overload]  # noqa: PTH100
    name, module = getattr(target, "__qualname__", ""), getattr(target, "__module__", "")
    file = inspect.getsourcefile(target) if inspect.isfunction(target) else None
    if file is None or "<" in name:
        raise UsageError(
            f"hangdoc_job: {name or target!r} cannot be called by another process",
            "Give a function that is defined at the top of a module, or the path of a script.",
        )
    literal = repr(arguments)
    try:
        same = ast.literal_eval(literal) == arguments
    except (ValueError, SyntaxError):
        same = False
    if not same:
        raise UsageError(
            f"hangdoc_job: the arguments {literal[:200]} cannot be handed to another process",
            "Give plain values (numbers, text, None, lists, tuples, dicts), a path as str(path).",
        )
    return [str(_CALLER), os.path.abspath(file), module, name, literal, repr(sys.path)]  # noqa: PTH100


def _environment(more: Mapping[str, str]) -> dict[str, str]:
    """Ours without what is meant for hangdoc; a machine for tests has few cores."""
    plain = {name: value for name, value in interpreter.environment().items() if not name.startswith("HANGDOC_")}
    return {"OMP_NUM_THREADS": "1", **plain, **more}


def _result(status: int | None, run_dir: Path, timeout: float) -> Diagnosis:
    if status is None:
        pytest.fail(f"hangdoc_job: the job neither ended nor hung within {timeout:g} s", pytrace=False)
    if status == 0:
        return Diagnosis(Outcome.HEALTHY, "The job ended by itself.")
    if not any(run_dir.glob("*.hangdoc")):
        what = "hangdoc ended a hang of it and left no snapshot" if status == ABORTED else f"exit status {status}"
        pytest.fail(f"hangdoc_job: the job could not be diagnosed: {what}; see its output", pytrace=False)
    return api.diagnose(run_dir)


def _read(output: Path) -> str:
    """The end of what the job and its watch have printed."""
    data: Any = output.read_bytes() if output.exists() else b""
    return str(data[-_MOST_OUTPUT:].decode("utf-8", "replace"))
