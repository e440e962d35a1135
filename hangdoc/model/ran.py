"""Which lines of the program have run, as the interpreter's own counters say.

CPython 3.11 and later counts, beside each instruction that it may specialise, how often that was tried: a line whose
instructions still have the counters that they were made with has not run. Example: on rank 2

    41  if len(batch) == 0:
    42      self.skipped.append(name)     # its counters have moved: it ran
    43      return None

and on the other ranks line 42 is as it was compiled: the condition was true on rank 2 alone.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Tested:
    """The last outcomes of one test that a jump goes by: 'TTF', the newest last (CPython 3.13 and later)."""

    line: int
    column: int
    """In bytes from the line's start, as in `ast`; -1 where it is not known."""
    end_line: int
    end_column: int
    """The end of the tested expression: `a` and `a and b` begin at one place."""
    outcomes: str
    """'T' and 'F': the expression was true, false. Of `x is None` and `x is not None` instead 'N' and 'V': `x` was
    None, it was a value. One expression may have several jumps: those of `a < b < c`, or of a `while` at
    both its ends.
    """


@dataclass(frozen=True, slots=True)
class RanCode:
    """One function (or class or module body) of the user's in one process.

    A line that is neither in ``ran`` nor in ``idle`` is not known: `continue` and `pass` have no counter.
    """

    file: str
    function: str
    """Its plain name, '<module>' for a module's body."""
    first_line: int
    called: bool | None
    """It has been called at least once (a generator: has begun); None where its counters do not tell."""
    ran: tuple[int, ...] = ()
    """Lines that have run, in order."""
    idle: tuple[int, ...] = ()
    """Lines that have not run."""
    since_warm: bool = False
    """``idle`` holds only since the function became warm: CPython 3.11 counts from its eighth call or round on."""
    tests: tuple[Tested, ...] = ()


def one_sided(processes: Iterable[Sequence[RanCode]]) -> list[RanCode]:
    """One of each function that some of these processes have called and others not, or that has a line which has run in
    one and not in another; in the order of the files."""
    known: dict[tuple[str, int, str], list[RanCode]] = {}
    for codes in processes:
        for code in codes:
            known.setdefault((code.file, code.first_line, code.function), []).append(code)
    found = []
    for key in sorted(known):
        codes = known[key]
        ran = {line for code in codes for line in code.ran}
        called = {code.called for code in codes}
        if {True, False} <= called or any(not ran.isdisjoint(code.idle) for code in codes):
            found.append(codes[0])
    return found


def partly_idle(processes: Iterable[Sequence[RanCode]]) -> list[RanCode]:
    """One of each function that has run in part: the ranks of another host may have run the rest."""
    every = {(code.file, code.first_line, code.function): code for codes in processes for code in codes if code.ran}
    return [every[key] for key in sorted(every) if every[key].idle]
