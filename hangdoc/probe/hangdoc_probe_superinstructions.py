"""CPython 3.12's superinstructions, given back to code from which no more events of lines come.

That interpreter makes one instruction of two, as ``LOAD_FAST__LOAD_FAST``, when it makes a code object, and takes them
apart as soon as a tool asks for any event of it; there they stay, some 2 % more instructions of a plain loop. What it
wrote at first is written again, where both parts are as it left them. That is within a private field: before anything
is written, code of our own has to show that this interpreter's code objects are as CPython 3.12's
(Include/cpython/code.h), and that it runs on as before. 3.13 has superinstructions, too, but its compiler makes them.
"""

from __future__ import annotations

import sys
from opcode import opmap

VERSION = (3, 12)
OFFSET = 192  # of co_code_adaptive, in a build without reference tracing
PARTS = {opmap["LOAD_FAST"], opmap["LOAD_CONST"], opmap["STORE_FAST"]}

_OURS = """
def ours(one, two):
    three = one + two
    three, four = two, three
    three += 1
    return 1 + three + four
"""


def restorer(tool):
    """A function of a code object; None where there is nothing to restore, or no way. ``tool``: ours, an id."""
    try:
        return _restorer(tool)
    except Exception:  # an interpreter of an unusual make
        return None


def _restorer(tool):
    if sys.version_info[:2] != VERSION or hasattr(sys, "gettotalrefcount"):
        return None
    import ctypes

    names = {}
    exec(compile(_OURS, "<hangdoc>", "exec"), names)  # noqa: S102 - our own text, a new code object
    ours = names["ours"]
    code, plain = ours.__code__, ours.__code__.co_code
    made = code._co_code_adaptive
    if ctypes.string_at(id(code) + OFFSET, len(made)) != made:
        return None
    pairs = {
        (plain[at], plain[at + 2]): made[at]
        for at in range(0, len(plain) - 2, 2)
        if plain[at] in PARTS and plain[at + 2] in PARTS and plain[at] != made[at]
    }
    restore = _restore(pairs, ctypes.c_ubyte.from_address)
    monitoring = sys.monitoring
    for _ in range(3):
        monitoring.set_local_events(tool, code, monitoring.events.LINE)
        taken_apart = code._co_code_adaptive
        monitoring.set_local_events(tool, code, 0)
        restore(code)
        now = code._co_code_adaptive
        places = [at for at in range(0, len(plain) - 2, 2) if (plain[at], plain[at + 2]) in pairs]
        if not places or any(now[at] != made[at] or taken_apart[at] == made[at] for at in places):
            return None
        if ours(1, 2) != 7 or code.co_code != plain:
            return None
    return restore


def _restore(pairs, byte_at):
    def restore(code, pairs=pairs, byte_at=byte_at, offset=OFFSET, id=id, len=len, range=range):
        plain, now = code.co_code, code._co_code_adaptive
        for at in range(0, len(now) - 2, 2):
            pair = plain[at], plain[at + 2]
            if pair in pairs and pair == (now[at], now[at + 2]):
                byte_at(id(code) + offset + at).value = pairs[pair]

    return restore
