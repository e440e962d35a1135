"""Decides whose code a frame is. One rule for capture (whose source to keep) and diagnosis (which line to name)."""

from __future__ import annotations

import re

from hangdoc.model.process import Stack

# Where packages and the standard library live under every CPython layout on Linux (venv, conda, pyenv,
# Debian, a zipped standard library), plus code that torch generates. hangdoc's own probe is neither.
_LIBRARY_PATH = re.compile(
    r"""
      (?:^|/)(?:site-packages|dist-packages)/
    | (?:^|/)lib(?:64)?/(?:python|pypy)\d+\.\d+t?/
    | (?:^|/)python\d+\.zip/
    | (?:^|/)torchinductor_[^/]*/
    | /(?P<shard>[a-z2-7]{2})/c(?P=shard)[a-z2-7]{40,}\.py$  # the same in a TORCHINDUCTOR_CACHE_DIR
    | (?:^|/)hangdoc/probe/
    | (?:^|/)hangdoc_probe\.py$
    """,
    re.VERBOSE,
)

# Names in angle brackets are no files. These are made by the interpreter or by libraries; every other one
# (`<string>`, `<stdin>`, `<ipython-input-3-…>`) is what somebody typed.
_LIBRARY_PSEUDO_FILES = (
    "<frozen ",
    "<attrs ",
    "<eval_with_key>",
    "<__array_function__ ",
    "<decorator-gen",
    "<shim>",
    "<torch_package",
)


def is_library_file(path: str, roots: tuple[str, ...] = ()) -> bool:
    """True if ``path`` (as the job saw it) is library code: standard, installed or generated.

    ``roots`` are further folders of library code, such as an editable install of torch. An empty path
    is library code: nobody can be shown a line of it.
    """
    if not path or path.startswith(_LIBRARY_PSEUDO_FILES):
        return True
    if path.startswith("<"):
        return False
    if _LIBRARY_PATH.search(path):
        return True
    return any(path.startswith(root.rstrip("/") + "/") for root in roots if root.strip("/"))


# Of the installed packages, torch is left out: what its functions do is known, by landmarks. But these parts of it
# (torch 2.13) decide by the data, or by what they count, whether a call goes on to communicate.
_DECIDES = r"torch/(?:cuda/)?amp/|torch/distributed/algorithms/model_averaging/"
_PACKAGE = re.compile(rf"(?:^|/)(?:site-packages|dist-packages)/(?:{_DECIDES}|(?!torch/|torchgen/|functorch/))")


def is_third_party(path: str) -> bool:
    """True for a file of an installed package other than torch, and of the parts of torch that decide by data."""
    return _PACKAGE.search(path) is not None


def libraries_between(stack: Stack, roots: tuple[str, ...] = ()) -> Stack:
    """The frames of installed packages, innermost first, that the user's code has called.

    Example: main → (ignite) run → step → (torch) backward: ignite's, as torch is left out.
    """
    own = own_frames(stack)
    users = [at for at, frame in enumerate(own) if not is_library_file(frame.file, roots)]
    return tuple(frame for frame in own[: users[-1]] if is_third_party(frame.file)) if users else ()


_RECORDER = tuple(f"/hangdoc_probe_{part}.py" for part in ("branches", "budget", "caught", "found"))
"""A signal's handler may run while the interpreter tells it of a branch."""


def own_frames(stack: Stack) -> Stack:
    """``stack`` without the probe's recorder of branches and the frames below multiprocessing's entry into the process.

    A forked process (a DataLoader worker, say) still carries its parent's frames there, a spawned one the
    ``<string>`` that started it; neither runs any more.
    """
    if any(frame.file.endswith(_RECORDER) for frame in stack):
        stack = tuple(frame for frame in stack if not frame.file.endswith(_RECORDER))
    for index, frame in enumerate(stack):
        if frame.file.endswith("/multiprocessing/process.py") and frame.function.endswith("_bootstrap"):
            return stack[: index + 1]
    return stack


def user_frames(stack: Stack, roots: tuple[str, ...] = ()) -> Stack:
    """The frames of ``stack`` that are user code, innermost first, a forked process's parent's left out."""
    return tuple(frame for frame in own_frames(stack) if not is_library_file(frame.file, roots))
