"""Other Pythons of this machine, and environments with torch for them.

PyTorch's wheels on PyPI for Linux are those for CUDA. Only a part of one is made for one version of Python: the NVIDIA
libraries, which a CPU job needs to be there and no more, and the packages in plain Python, are kept once for all.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from importlib.metadata import requires
from pathlib import Path

TORCH = "2.14.1"
"""The newest that all of these Pythons have."""
CACHE = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "hangdoc-tests"
ROOT = Path(__file__).parents[2]


class CannotBeHadError(Exception):
    """Why there is no such environment here."""


def found(version: str) -> str:
    """A Python of that version: the system's, one in the path, or one of pyenv's; '' if there is none."""
    on_path = shutil.which(f"python{version}", path=f"/usr/bin:/usr/local/bin:{os.environ.get('PATH', '')}")
    if on_path and "/shims/" not in on_path:
        return os.path.realpath(on_path)
    folder = Path(os.environ.get("PYENV_ROOT") or Path.home() / ".pyenv") / "versions"
    return next((str(path) for path in sorted(folder.glob(f"{version}.*/bin/python{version}"))), "")


def with_torch_and_hangdoc(version: str, *, seconds: float) -> str:
    """A Python of that version in an environment with torch and this hangdoc, kept for the next time.

    Raises ``CannotBeHadError``, at the latest after ``seconds``.
    """
    until = time.monotonic() + seconds
    python = found(version)
    if not python:
        raise CannotBeHadError(f"no Python {version}: neither in /usr/bin, nor in PATH, nor in ~/.pyenv/versions")
    folder = CACHE / f"python{version}-torch{TORCH}"
    mine = str(folder / "bin" / "python")
    if not (folder / "complete").exists():
        shutil.rmtree(folder, ignore_errors=True)
        _run([python, "-m", "venv", str(folder)], until)
        _install(mine, until, "--no-deps", f"torch=={TORCH}")
        (folder / "lib" / f"python{version}" / "site-packages" / "shared.pth").write_text(f"{_shared(mine, until)}\n")
        _install(mine, until, "numpy", *_dependencies())
        (folder / "complete").touch()
    _install(mine, until, "--no-deps", "--force-reinstall", str(ROOT))
    return mine


def _shared(python: str, until: float) -> Path:
    """What torch needs that fits every Python; the first one that is asked, the oldest, chooses the versions."""
    folder = CACHE / f"libraries-torch{TORCH}"
    if not (folder / "complete").exists():
        shutil.rmtree(folder, ignore_errors=True)
        code = "from importlib.metadata import requires; print(*requires('torch'), sep='\\n')"
        needed = _run([python, "-c", code], until).splitlines()
        # Triton compiles for GPUs alone, and is large.
        wanted = [each for each in needed if "extra ==" not in each and not each.startswith("triton")]
        _install(python, until, "--target", str(folder), *wanted)
        (folder / "complete").touch()
    return folder


def _dependencies() -> list[str]:
    """Those of hangdoc. torch is there already, without all that pip holds to belong to it."""
    return [each for each in requires("hangdoc") or () if "extra ==" not in each and each != "torch"]


def _install(python: str, until: float, *what: str) -> None:
    _run([python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *what], until)


def _run(line: list[str], until: float) -> str:
    """What the command prints. ``until``: of the monotonic clock, when it has to have ended."""
    seconds = max(1.0, until - time.monotonic())
    environment = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "VIRTUAL_ENV")}
    try:
        done = subprocess.run(line, env=environment, capture_output=True, text=True, timeout=seconds, check=False)
    except subprocess.TimeoutExpired:
        raise CannotBeHadError(f"not within {seconds:.0f} s: {' '.join(line)}") from None
    if done.returncode:
        raise CannotBeHadError(f"{' '.join(line)}: {done.stderr[-500:]}")
    return done.stdout


def main() -> None:
    """Make the environments of the versions in the arguments, and print their Pythons."""
    for version in sys.argv[1:]:
        print(with_torch_and_hangdoc(version, seconds=600))


if __name__ == "__main__":
    main()
