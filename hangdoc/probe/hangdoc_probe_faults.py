"""The Python stacks of a rank that its own native code ends (SIGABRT, SIGSEGV, SIGBUS, SIGFPE, SIGILL).

Python's faulthandler writes them, in the moment of the signal, into ``<pid>.fault``, and the rank then dies of that
signal as it would without us. A program that has faulthandler on already, or handles one of these signals itself,
keeps what it has. One that asks faulthandler for anything later finds it as if nobody had turned it on.

faulthandler knows its file by a descriptor's number. Ours is far above those in use, where only a program that has
closed all its descriptors and then holds as many open again gets to; the answering thread looks after it whenever
somebody asks the rank, which a watch does once a second.
"""

from __future__ import annotations

import faulthandler
import fcntl
import os
import resource
import signal
import sys

SIGNALS = (signal.SIGABRT, signal.SIGSEGV, signal.SIGBUS, signal.SIGFPE, signal.SIGILL)
USUAL_DESCRIPTOR = 4000  # judgement: few programs hold so many; each fork copies a table of 32 KiB up to it
LOWEST_DESCRIPTOR = 100
SPARE_DESCRIPTORS = 24  # at the end of a low limit, which a program that uses it up meets as early as without us

_enable, _is_enabled, _disable = faulthandler.enable, faulthandler.is_enabled, faulthandler.disable


class Faults:
    """What faulthandler writes to on our behalf. ``descriptor`` -1: nothing, as it is the program's."""

    def __init__(self, path):
        self.path = path
        self.descriptor = -1
        self.identity = None

    def start(self):
        """Begin, unless the program has a use of its own for faulthandler or for one of the signals."""
        if _is_enabled() or _handled():
            return
        if os.path.lexists(self.path):
            os.unlink(self.path)  # left by an earlier process of the same number, or by us before an exec
        self._write_to(self.path)
        _stand_in(self)

    def look_after(self):
        """Take another descriptor if the job has closed ours: its number may be a file of the job's by now."""
        if self.descriptor >= 0 and _identity(self.descriptor) != self.identity:
            self._write_to(self.path)

    def in_child(self):
        """In a forked child, whose end is not the rank's: its stacks go nowhere."""
        if self.descriptor >= 0:
            try:
                self._write_to(os.devnull)
            except OSError:
                _disable()
                self.descriptor = -1

    def give_up(self):
        """The program has taken faulthandler over."""
        descriptor, self.descriptor = self.descriptor, -1
        if descriptor >= 0 and _identity(descriptor) == self.identity:
            os.close(descriptor)

    def _write_to(self, path):
        """Only the file changes: who has put a handler above faulthandler's since may lead to it."""
        before, identity = self.descriptor, self.identity
        found = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        try:
            high = fcntl.fcntl(found, fcntl.F_DUPFD_CLOEXEC, _lowest())
        finally:
            os.close(found)
        # Python 3.14's C stack loads a library and takes memory: in a broken process both may wait for ever.
        more = {"c_stack": False} if sys.version_info >= (3, 14) else {}
        try:
            _enable(file=high, all_threads=True, **more)
        except Exception:
            os.close(high)
            raise
        self.descriptor, self.identity = high, _identity(high)
        if before >= 0 and _identity(before) == identity:
            os.close(before)


def start(state):
    """Begin for the rank that ``state`` is of. In a child that was forked from a rank, its own file follows."""
    path = os.path.join(state.folder, f"{state.pid}.fault")
    if state.faults is not None and state.faults.descriptor >= 0:
        state.faults.path = path
        state.faults._write_to(path)
        return
    state.faults = Faults(path)
    state.faults.start()


def _lowest():
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    if limit == resource.RLIM_INFINITY:
        return USUAL_DESCRIPTOR
    return max(LOWEST_DESCRIPTOR, min(USUAL_DESCRIPTOR, limit - SPARE_DESCRIPTORS))


def _identity(descriptor):
    try:
        found = os.fstat(descriptor)
    except OSError:
        return None
    return found.st_dev, found.st_ino


def _handled():
    """True if a signal of ours is caught or ignored already, by whatever code: a runtime that lives on its faults, as
    Java's does, would not know them again from faulthandler's hand."""
    with open("/proc/self/status", "rb") as file:
        lines = dict(line.split(b":", 1) for line in file.read().splitlines() if line.startswith(b"Sig"))
    taken = int(lines[b"SigCgt"], 16) | int(lines[b"SigIgn"], 16)
    return any(taken >> (number - 1) & 1 for number in SIGNALS)


def _stand_in(faults):
    """Have the module's functions act as if faulthandler were off, until the program turns it on."""

    def enable(*args, **kwargs):
        _enable(*args, **kwargs)
        for name, original in originals.items():
            if getattr(faulthandler, name) is replacements[name]:
                setattr(faulthandler, name, original)
        faults.give_up()

    def is_enabled():
        return False

    def disable():
        return False

    originals = {"enable": _enable, "is_enabled": _is_enabled, "disable": _disable}
    replacements = {"enable": enable, "is_enabled": is_enabled, "disable": disable}
    for name, replacement in replacements.items():
        replacement.__qualname__, replacement.__module__ = name, "faulthandler"
        replacement.__doc__ = originals[name].__doc__
        setattr(faulthandler, name, replacement)
