"""Python without the working directory on its path: a file there may be the user's, or a stranger's.

``python -c`` and ``-m`` put the working directory first on sys.path, and so does an empty entry of PYTHONPATH: a
json.py or torch.py there would be run in place of the real one. Neither option of Python's helps: -P came with 3.11
and keeps PYTHONPATH's entry, and -I loses all of PYTHONPATH, where HPC modules name what they install.
"""

# Not even `from __future__ import …`: Python would look for every imported module in the working directory.
import os
import sys

_HOME = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))  # noqa: PTH100, PTH120 - pathlib is an import
"""The folder that holds the package; in a checkout it may be the working directory, and is then put last."""

# Only built-in modules, and no syntax that an older Python lacks: the job's own Python runs it, too.
_FORGET = """
import posix, sys
def _elsewhere(entry):
    try:
        return posix.stat(entry)[1:3] != posix.stat(".")[1:3]
    except (OSError, TypeError, ValueError):
        return entry != ""
sys.path[:] = [entry for entry in sys.path if _elsewhere(entry)]
del posix, _elsewhere
"""


def forget_working_directory() -> None:
    """Take the working directory off this process's sys.path. For programs; a library leaves the path alone."""
    exec(_FORGET, {})  # noqa: S102 - our own text, and the same one for us and for our children
    if _HOME not in sys.path:
        sys.path.append(_HOME)


def command(code: str, *words: str, python: str | None = None, options: tuple[str, ...] = ()) -> list[str]:
    """The command line that runs ``code`` with ``words`` as its arguments; start it in ``environment()``.

    ``python`` None: our own interpreter, where ``code`` may import hangdoc. ``options`` are the interpreter's.
    """
    ours = f"sys.path.append({_HOME!r})\n" if python is None else ""
    return [python or sys.executable, *options, "-c", f"{_FORGET}{ours}{code}", *words]


def environment(base: dict[str, str] | None = None) -> dict[str, str]:
    """``base`` (default: ours) without the entries of PYTHONPATH that mean the working directory.

    Python imports a few modules before it runs any code of ours: ``:/opt/lib`` → ``/opt/lib``.
    """
    found = dict(os.environ if base is None else base)
    entries = [entry for entry in found.pop("PYTHONPATH", "").split(os.pathsep) if not _is_here(entry)]
    return {**found, "PYTHONPATH": os.pathsep.join(entries)} if entries else found


def _is_here(entry: str) -> bool:
    try:
        return os.path.samestat(os.stat(entry or "."), os.stat("."))  # noqa: PTH116
    except (OSError, ValueError):
        return not entry
