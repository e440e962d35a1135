"""What the recorder of branches keeps of exceptions: which came to a handler of the program's, and what raised them.

``except X:`` and ``with suppress(X):`` are branches, which come by only where there is an exception; a bare ``except:``
is a line that does. So what is caught costs nothing where nothing is raised. Events of exceptions themselves come of
all code and cannot be disabled: with them an exception takes 1.7 to 2.3 times as long (3.12.1, 3.13.0).

As in the recorder, nothing here may raise by itself, and all that is needed is reached by defaults.
"""

from __future__ import annotations

import sys
from collections import deque
from opcode import opmap

MOST_WAYS, OF_A_WAY = 200, 8  # handlers, matched or not, and exceptions of each: 0.4 MB
DEEPEST = 100  # frames that an exception went through

CATCHING = tuple(opmap[name] for name in ("CHECK_EXC_MATCH", "CHECK_EG_MATCH", "WITH_EXCEPT_START") if name in opmap)
CATCHES_ALL = bytes((opmap["PUSH_EXC_INFO"], 0, opmap["POP_TOP"], 0))  # `except:`, which tests nothing
JUMPS_IF = {number for name, number in opmap.items() if name.startswith("POP_JUMP_IF")}


def catch(
    state,
    entry,
    exc_info=sys.exc_info,
    name_of=type.__dict__["__name__"].__get__,
    new=deque,
    most=MOST_WAYS,
    of_each=OF_A_WAY,
    deepest=DEEPEST,
    id=id,
    len=len,
):
    """Keep which exception came there, and where the program raised it. Asks nothing that the program may answer."""
    kind, _, trace = exc_info()
    raised, watched, caught = None, state.watched, state.caught
    while trace is not None and deepest:
        code = trace.tb_frame.f_code
        if id(code) in watched:
            raised = code, trace.tb_lasti
        trace, deepest = trace.tb_next, deepest - 1
    way = id(entry[0]), entry[1]
    if way not in caught and len(caught) < most:
        caught[way] = new(maxlen=of_each)
    if way in caught:
        caught[way].append((entry, name_of(kind) if kind is not None else "", raised))


def find_catching(
    state,
    key,
    code,
    catching=CATCHING,
    all_of_them=CATCHES_ALL,
    jumps=JUMPS_IF,
    block=opmap["WITH_EXCEPT_START"],
    longer=opmap["EXTENDED_ARG"],
    len=len,
    set=set,
    range=range,
):
    """Where the code catches exceptions: branches, and `except:`."""
    plain = code.co_code
    found, offsets = set(), set()
    for operation in catching:
        at = plain.find(operation)
        while at >= 0:
            if not at % 2:
                at += 2
                while at < len(plain) - 2 and plain[at] not in jumps:
                    at += 2
                found.add(at)
                onwards = at + 2
                while onwards < len(plain) and not plain[onwards]:  # its cache
                    onwards += 2
                target = onwards + 2 * plain[at + 1]
                if operation != block and plain[target : target + 2] == all_of_them[2:] and plain[at - 2] != longer:
                    offsets.add(target - 2)  # an `except:` behind others
            at = plain.find(operation, at + 1)
    at = plain.find(all_of_them)
    while at >= 0:
        if not at % 2:
            offsets.add(at)
        at = plain.find(all_of_them, at + 1)
    if offsets:
        # The jump to a handler has the handler's line only behind it.
        lines = {start: line for start, end, line in code.co_lines() for start in range(start, end, 2)}
        state.catching_all[key] = {lines[at + 2]: at for at in offsets if lines.get(at + 2)}
    state.catching[key] = found | offsets
