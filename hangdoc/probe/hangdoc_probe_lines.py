"""Has CPython 3.11 count from a function's first call which of its instructions have run.

CPython keeps counters beside instructions that it may specialise, and hangdoc reads them from outside. 3.12 and later
count from the first call on; 3.11 begins at a function's eighth call or round, and so tells nothing of what runs once.
Each code object holds how many are left until then. Of the user's code, that number is set to the last one here; all
the rest the interpreter does by itself, as it would a few calls later. It is a private field: before anything is set, a
function of our own has to show that this interpreter's code objects are as CPython 3.11's (Include/cpython/code.h),
and that setting it does just that.
"""

from __future__ import annotations

import sys
import types

from hangdoc_probe_program import code_in, namespaces, nested

VERSION = (3, 11)
OFFSET = 52  # of co_warmup, a short, in a build without reference tracing
FIRST, LAST = -8, -1  # QUICKENING_INITIAL_WARMUP_VALUE; 0: it has begun
MOST_CODES = 20_000  # judgement: some ten milliseconds

_OURS = "def ours(value):\n    return value.real + 1\n"


class Lines:
    """Sets it for the code that is there; ``more`` is called again as more of the program is imported."""

    def __init__(self, roots):
        self.roots = tuple(root.rstrip("/") + "/" for root in roots)
        self.left = MOST_CODES
        self.modules = set()  # ids of their namespaces, and how many names they had
        self.short = _short()

    def more(self, frame):
        """``frame``: where the program is. What its modules will define lies in their code already."""
        try:
            if self.short is not None:
                self._more(frame)
        except Exception:  # the job goes on without us
            self.short = None

    def _more(self, frame):
        while frame is not None:
            if frame.f_code.co_name == "<module>":
                self._set(frame.f_code)
            frame = frame.f_back
        for names in namespaces(self._is_users):
            if (id(names), len(names)) not in self.modules:
                self.modules.add((id(names), len(names)))
                for code in code_in(names, self._is_users):
                    self._set(code)

    def _set(self, code):
        """The code, and that of the functions and classes in it."""
        pending = [code]
        while pending and self.left > 0:
            code = pending.pop()
            if not self._is_users(code.co_filename):
                continue
            self.left -= 1
            count = self.short.from_address(id(code) + OFFSET)
            if FIRST <= count.value < LAST:
                count.value = LAST
            pending += nested(code)

    def _is_users(self, file):
        return file[:1] != "<" and not file.startswith(self.roots)


def _short():
    try:
        return _checked()
    except Exception:
        return None


def _checked():
    """ctypes' short, whose ``from_address`` keeps the interpreter's lock; None where all is to stay as it is."""
    if sys.implementation.name != "cpython" or sys.version_info[:2] != VERSION or hasattr(sys, "gettotalrefcount"):
        return None
    import ctypes

    names = {}
    exec(compile(_OURS, "<hangdoc>", "exec"), names)  # noqa: S102 - our own text, a new code object
    ours = names["ours"]
    code = ours.__code__
    if types.CodeType.__basicsize__ < OFFSET + 2 or ctypes.c_ssize_t.from_address(id(code)).value < 1:
        return None
    count = ctypes.c_short.from_address(id(code) + OFFSET)
    seen = [count.value]
    for _ in range(2):
        ours(1)
        seen.append(count.value)
    if seen != [FIRST, FIRST + 1, FIRST + 2] or code._co_code_adaptive != code.co_code:
        return None
    count.value = LAST
    right = ours(1) == 2 and count.value == 0 and code._co_code_adaptive != code.co_code and ours(2) == 3
    return ctypes.c_short if right else None
