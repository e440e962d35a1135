"""What the recorder of branches knows, for an answer: places and outcomes instead of offsets and jumps.

Read in the rank's own Python, as the columns of a test and the senses of its jump differ by version.
"""

from __future__ import annotations

from base64 import b64encode
from collections import deque
from opcode import opmap

from hangdoc_probe_branches import slot

# Of an answer; judgement.
MOST_BYTES = 1 << 16  # of bytecode with counters from before
MOST_OF_A_THREAD = 1000  # outcomes, the newest
LAST = 16  # outcomes of a branch that are told in order
LONGEST_NAME = 300

# Branch → the value that was tested where it does not jump, and where it does (as of ``model.ran.Tested``).
SENSES = {
    "FOR_ITER": "TF",
    "POP_JUMP_IF_FALSE": "TF",
    "POP_JUMP_IF_TRUE": "FT",
    "POP_JUMP_IF_NONE": "VN",
    "POP_JUMP_IF_NOT_NONE": "NV",
}
BRANCHES = {opmap[name]: letters for name, letters in SENSES.items() if name in opmap}
LEAVING = {number for name, number in opmap.items() if "JUMP" in name or name.startswith(("R", "YIELD_"))}
LEAVING -= {opmap["RESUME"], opmap["RETURN_GENERATOR"]}
JUMPS = {number for name, number in opmap.items() if "JUMP" in name}
SUSPENDED = 0x20 | 0x80 | 0x200  # CO_GENERATOR, CO_COROUTINE, CO_ASYNC_GENERATOR
EXTENDED_ARG, RESUME = opmap["EXTENDED_ARG"], opmap["RESUME"]


def told(state):
    """For JSON.

    ``codes``: [file, function, first line, its lines, those that have run since it was first seen, whether that was
    its first call; else its bytecode with the counters from then, and its table of lines]. ``tests``: [code, line,
    column, last line, end column, the values without a jump and with one, how often each, the last ones, whether it
    was told of all]. ``threads``: [thread, [test, value, time in ns, …]], the newest last; ``main``: the main one,
    which alone is told. ``interleaved``: codes of which several calls may be under way at once in a thread, so that
    the order of their tests is not that of one call: generators, coroutines, and what has called itself.
    """
    codes, tests, ways, left, interleaved = [], [], {}, MOST_BYTES, []
    for key in list(state.watched):
        code = state.codes[key]
        before = _as_compiled(code, state.before[key])
        new = _counts_at_once(code) and _counts(code, before) == _counts(code, code.replace()._co_code_adaptive)
        if not new and (left := left - len(before)) < 0:
            before = b""
        packed = ["", ""] if new else [_text(before), _text(code.co_linetable)]
        lines, known = _lines(code)
        seen = set(state.lines[key])
        if key in state.unlined:
            seen |= _counted_since(code, state.before[key])
        for place, letters, offset, slots in _branches(code):
            counts = [state.outcomes[key][each] for each in slots]
            if any(counts):
                seen.add(place[0])
                ways.update({(key, each): (len(tests), letters[way]) for way, each in enumerate(slots)})
                tests.append([len(codes), *place, letters, *counts, "", (key, offset) not in state.hot])
        name = code.co_name[:LONGEST_NAME]
        if code.co_flags & SUSPENDED or key in state.nested:
            interleaved.append(len(codes))
        ran = sorted(known.intersection(seen))
        codes.append([code.co_filename, name, code.co_firstlineno, lines, ran, new, *packed])
    rings = [[(*ways[key], ns) for key, ns in _copied(ring) if key in ways] for ring in state.rings]
    last = [deque(maxlen=LAST) for _ in tests]
    for number, value, _ in sorted((each for ring in rings for each in ring), key=lambda each: each[2]):
        last[number].append(value)
    for test, values in zip(tests, last, strict=True):
        test[8] = "".join(values)
    main = [part for each in rings[0][-MOST_OF_A_THREAD:] for part in each]
    return {
        "codes": codes,
        "tests": tests,
        "threads": [[state.main, main]],
        "main": state.main,
        "interleaved": interleaved,
        "why": state.why,
    }


def _copied(ring):
    """[((id of the code, slot), ns), …]"""
    for _ in range(5):
        try:
            return [((id(code), place), ns) for code, place, ns in list(ring)]
        except RuntimeError:  # a thread of the job added to it meanwhile
            continue
    return []


def _text(data):
    return b64encode(data).decode("ascii")


def _as_compiled(code, bytecode):
    """``bytecode`` without the mark of who watches calls."""
    plain, found = code.co_code, bytearray(bytecode)
    for at in range(0, len(plain), 2):
        if plain[at] == RESUME:
            found[at] = RESUME
    return bytes(found)


def _counts_at_once(code):
    """True if no call can pass by all counters: there is one in front of the first branch and the first way out."""
    plain = code.co_code + b"\1\1"
    for at in range(0, len(plain) - 2, 2):
        if not plain[at + 2]:
            return True
        if plain[at] in LEAVING:
            return False
    return False


def _counts(code, bytecode):
    """The instructions that have counters, and these. Of others, CPython 3.12 makes one of two where nobody watches."""
    plain = code.co_code + b"\1"
    return [bytecode[at : at + 2] for at in range(0, len(bytecode), 2) if not plain[at] or not plain[at + 2]]


def _counted_since(code, before):
    """The lines of which a counter is no more as it was ``before``. Events of lines have set back those of others."""
    now, places = code._co_code_adaptive, [place[0] for place in code.co_positions()]
    return {places[at // 2] for at in _counting(code) if now[at + 2 : at + 4] != before[at + 2 : at + 4]}


def _counting(code):
    """Where the instructions are that have counters, but for jumps, whose counters are not of calls."""
    plain = code.co_code + b"\1\1"
    return [at for at in range(0, len(plain) - 2, 2) if plain[at] and not plain[at + 2] and plain[at] not in JUMPS]


def _lines(code):
    """(the lines that the interpreter's counters could tell of, those with counters of jumps as well).

    Of others (`return 0`, `continue`) the recorder knows more than whoever reads which lines have run has learned to
    weigh: that both ranks of a pair have run one says nothing of the last round.
    """
    plain = code.co_code + b"\1\1"
    places = [place[0] for place in code.co_positions()]
    counted = {places[at // 2] for at in range(0, len(plain) - 2, 2) if plain[at] and not plain[at + 2]}
    steady = {places[at // 2] for at in _counting(code)}
    return sorted(steady - {None}), counted - {None}


def _branches(code):
    """([line, column, last line, end column], values, offset, slots) of each branch: without a jump, and with one."""
    plain, places = code.co_code, list(code.co_positions())
    argument = 0
    for at in range(0, len(plain), 2):
        operation = plain[at]
        argument = argument << 8 | plain[at + 1]
        if operation in BRANCHES:
            onwards = at + 2
            while onwards < len(plain) and not plain[onwards]:  # its cache
                onwards += 2
            line, last, column, end = (-1 if part is None else part for part in places[at // 2])
            yield (
                [line, column, last, end],
                BRANCHES[operation],
                at,
                (
                    slot(at, onwards),
                    slot(at, onwards + 2 * argument),
                ),
            )
        if operation != EXTENDED_ARG:
            argument = 0
