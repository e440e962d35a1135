"""How the branches of the program came out in one process, as the probe records it (CPython 3.12 to 3.14).

Example: of `if loss > limit:`, false in 411 rounds and true in the last, ``values`` is 'TF', ``counts`` (1, 411) and
``last`` 'FFFFFFFFFFFFFFFT'.
"""

from __future__ import annotations

from dataclasses import dataclass

VALUES = ("TF", "FT", "NV", "VN")
"""What a test has without a jump and with one."""
WORDS = {"T": "true", "F": "false", "N": "None", "V": "not None"}
LAST = 16
"""Values that ``BranchCounts.last`` holds at most."""
MOST_BRANCHES = 200
"""Entries of ``Process.branches``: fewer are all tests that were recorded."""
MOST_TAKEN = 700
"""Entries of ``Process.taken``: fewer are all of them. Some 7 bytes each in a snapshot."""
MOST_CAUGHT = 100
"""Entries of ``Process.caught``, the newest."""


@dataclass(frozen=True, slots=True)
class BranchCounts:
    """One test that a jump goes by. An expression may have several: those of `a < b < c`, or of a `while` at both its
    ends. `except X:` and `with suppress(X):` are tests of what was raised, 'T' where it is caught there."""

    file: str
    function: str
    """Its plain name, '<module>' for a module's body."""
    line: int
    column: int
    """In bytes from the line's start, as in `ast`; -1 where it is not known. Of a `for` of CPython 3.12, the place is
    that of the whole statement."""
    end_line: int
    end_column: int
    values: str
    """The two values as of ``ran.Tested``: 'T' and 'F', or 'N' and 'V'. Of a `for`, 'T' is another round."""
    counts: tuple[int, int]
    """How often it had each of them, in every thread."""
    last: str = ""
    """Its last values, the newest last."""
    whole: bool = False
    """``counts`` has every value that it ever had: the code ran first when it was recorded already, and the test did
    not come so often that the probe gave up on it."""
    cut: bool = False
    """It came so often that the probe gave up on it: of what it had since, nothing is known."""
    since_ns: int = 0
    """Since when ``Process.taken`` has every value of the main thread's, in Unix time; 0: since the program's start."""

    @property
    def is_sound(self) -> bool:
        """False where a file says what no probe does."""
        return self.values in VALUES and set(self.last) <= set(self.values) and min(self.counts) >= 0


@dataclass(frozen=True, slots=True)
class Taken:
    """One value of a test in the main thread. ``branch``: its place in ``Process.branches``; ``at_ns``: Unix time."""

    branch: int
    value: str
    at_ns: int


@dataclass(frozen=True, slots=True)
class Caught:
    """An exception that came to an `except` or `with` in the main thread: ``branch`` as of ``Taken``. Its text is not
    kept."""

    branch: int
    at_ns: int
    exception: str
    """Its type's name."""
    file: str = ""
    """Where the program raised it, or called what did; '' where that was outside of it."""
    line: int = 0
    function: str = ""
