"""What the recorder of branches knows, for an answer: places and outcomes instead of offsets and jumps.

Read in the rank's own Python, as the columns of a test and the senses of its jump differ by version.
"""

from __future__ import annotations

from base64 import b64encode
from collections import deque
from opcode import opmap

try:
    from opcode import _specialized_opmap
except ImportError:  # 3.12
    _specialized_opmap = {}

from hangdoc_probe_branches import slot
from hangdoc_probe_budget import times

# Of an answer; judgement.
MOST_BYTES = 1 << 16  # of bytecode with counters from before
MOST_UNCALLED = 400  # code objects; as many as are read of a rank's memory
NEWEST = 350  # outcomes of the main thread
OLDER, OF_A_WAY = 350, 4  # and so many before: rare ones rather than more than so many of one way
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
NOT_TAKEN = bytes((opmap["NOT_TAKEN"],)) if "NOT_TAKEN" in opmap else None  # from 3.14 on
EXTENDED_ARG, RESUME = opmap["EXTENDED_ARG"], opmap["RESUME"]
STARTED = {RESUME, _specialized_opmap.get("RESUME_CHECK", RESUME)}  # the latter, from 3.13 on, once it has run
BEGINNING = {
    opmap[name] for name in ("RETURN_GENERATOR", "POP_TOP", "MAKE_CELL", "COPY_FREE_VARS", "RESUME", "CACHE")
}  # what each call runs first, on the line of the `def`


def told(state):
    """For JSON.

    ``codes``: [file, function, first line, its lines, those that have run since it was first known, null if it has not
    been called since; whether it had not been called before; else its bytecode with the counters from then, and its
    table of lines]. ``tests``: [code, line,
    column, last line, end column, the values without a jump and with one, how often each, the last ones, whether it
    was told of all, since when ``threads`` has all of the main thread's]. ``threads``: [thread, [test, value, time in
    ns, …]], the newest last; ``main``: the main one, which alone is told. ``caught``: [test, time in ns, the type of
    the exception, the code and the line that raised it], of the main thread; -1: outside of the program.
    ``interleaved``: codes of which several calls may be under way at once in a thread, so that the order of their tests
    is not that of one call: generators, coroutines, and what has called itself.
    """
    codes, tests, ways, left, interleaved, numbers, catching = [], [], {}, MOST_BYTES, [], {}, set()
    for key in list(state.watched):
        code = state.codes[key]
        before = _before(code, state.before[key])
        if (left := left - len(before or b"")) < 0:
            before = before and b""
        places = list(code.co_positions())
        lines, known = _lines(code, places)
        seen = set(state.lines[key])
        if key in state.unlined:
            seen |= _counted_since(code, state.before[key])
        for place, letters, offset, slots in (
            *_branches(code, places),
            *_catching_all(places, state.catching_all.get(key, {})),
        ):
            counts = [times(state.outcomes[key][each]) if each is not None else 0 for each in slots]
            if any(counts):
                if offset in state.catching.get(key, ()):
                    catching.add(len(tests))
                whole = (key, offset) not in state.hot and not (slots[1] is None and key in state.unlined)
                seen.add(place[0])
                ways.update({(key, each): (len(tests), letters[way]) for way, each in enumerate(slots)})
                tests.append([len(codes), *place, letters, *counts, "", whole, 0])
        name = code.co_name[:LONGEST_NAME]
        if code.co_flags & SUSPENDED or key in state.nested:
            interleaved.append(len(codes))
        ran = sorted(known.intersection(seen))
        numbers[key] = len(codes)
        codes.append([code.co_filename, name, code.co_firstlineno, lines, ran, *_packed(code, before)])
    codes += _uncalled(state, left)
    events, caught, horizons = _events(state, ways, catching)
    since, since_anywhere = _known_since(state, ways, catching, horizons)
    last = [deque(maxlen=LAST) for _ in tests]
    for ns, number, value, _ in events:
        if ns >= since_anywhere[number]:
            last[number].append(value)
    main = _thinned([(number, value, ns) for ns, number, value, thread in events if thread == state.main], since)
    for test, values, at in zip(tests, last, since, strict=True):
        test[8], test[10] = "".join(values), at
    return {
        "codes": codes,
        "tests": tests,
        "threads": [[state.main, [part for each in main for part in each]]],
        "main": state.main,
        "caught": [
            [*each, *((numbers[id(raised[0])], _line(*raised)) if raised and id(raised[0]) in numbers else (-1, -1))]
            for *each, raised in caught
        ],
        "interleaved": interleaved,
        "why": state.why,
    }


def _uncalled(state, left):
    """Those of ``codes`` that have not been called since they were known; first of the files where others have been.

    ``left``: bytes of bytecode.
    """
    called = [state.codes[key] for key in list(state.watched)]
    known, files = {_place(code) for code in called}, {code.co_filename for code in called}
    codes = [
        (key, code) for key, code in state.codes.copy().items() if key in state.before and key not in state.watched
    ]
    found = []
    for key, code in sorted(codes, key=lambda each: each[1].co_filename not in files)[:MOST_UNCALLED]:
        if _place(code) in known:
            continue
        before = _before(code, state.before[key])
        if (left := left - len(before or b"")) >= 0:
            known.add(_place(code))
            lines = _lines_of_a_call(code)
            found.append(
                [
                    code.co_filename,
                    code.co_name[:LONGEST_NAME],
                    code.co_firstlineno,
                    lines,
                    None,
                    *_packed(code, before),
                ]
            )
    return found


def _place(code):
    return code.co_filename, code.co_firstlineno, code.co_name


def _before(code, bytecode):
    """The bytecode with the counters from when it was first known; None if it had not been called."""
    made = code.replace()._co_code_adaptive
    before = bytecode if bytecode == made else _as_compiled(code, bytecode)
    if _counts_at_once(code) and (before == made or _counts(code, before) == _counts(code, made)):
        return None
    return before


def _packed(code, before):
    return [before is None, *(map(_text, (before, code.co_linetable)) if before is not None else ("", ""))]


def _events(state, ways, catching):
    """([(ns, test, value, thread), …] in order, [(test, ns, type, what raised it), …] of the main thread, since when
    all outcomes are there of the main thread and of the others)."""
    rings = [_copied(ring) for ring in state.rings]
    horizons = [copy[0][2] if len(copy) == ring.maxlen else 0 for copy, ring in zip(rings, state.rings, strict=True)]
    rare = [entry for kept in list(state.newest.values()) if isinstance(kept, list) for entry in list(kept)]
    rare = [entry for entry in rare if entry[2] < horizons[len(entry) > 3]]
    found, caught = [], []
    for entries in (*rings, rare):
        for entry in entries:
            number, value = ways.get((id(entry[0]), entry[1]), (-1, ""))
            if number >= 0 and number not in catching:  # those are told of by themselves
                found.append((entry[2], number, value, entry[3] if len(entry) > 3 else state.main))
    for way, entries in list(state.caught.items()):
        for entry, kind, raised in _copied(entries) if way in ways else ():
            number, value = ways[way]
            thread = entry[3] if len(entry) > 3 else state.main
            found.append((entry[2], number, value, thread))
            if thread == state.main:
                caught.append((number, entry[2], kind[:LONGEST_NAME], raised))
    return sorted(found), caught, horizons


def _known_since(state, ways, catching, horizons):
    """For each test since when all of its outcomes are there, of the main thread and of all threads; 0: since the start
    of the program. ``horizons``: since when all are there of the tests that come often."""
    since = [[0] * (max((number for number, _ in ways.values()), default=-1) + 1) for _ in (0, 1)]
    often = horizons[0], max(horizons)
    for way, (number, _) in ways.items():
        count = times(state.outcomes[way[0]][way[1]]) if way[1] is not None else 0
        if number in catching:
            kept = [entry for entry, _, _ in _copied(state.caught.get(way, ()))]
        else:
            kept = state.newest.get(way)
            kept = list(kept) if isinstance(kept, list) else []
        if len(kept) < count:
            oldest = min((entry[2] for entry in kept), default=often[1])
            for of_these, horizon in zip(since, often, strict=True):
                at = oldest if number in catching else min(horizon, oldest)
                of_these[number] = max(of_these[number], at)
    return since


def _quota(sizes, room):
    """How many of each there may be at most, so that there is room for them together."""
    left, quota = room, room
    for number, size in enumerate(sorted(sizes)):
        quota = left // (len(sizes) - number)
        if size > quota:
            return quota
        left -= size
    return quota


def _thinned(events, since):
    """The newest, and of the older ones rare outcomes before frequent ones; ``since`` is as that leaves it."""
    older, newest = events[:-NEWEST], events[-NEWEST:]
    left = {}
    for *way, _ in older:
        left[tuple(way)] = left.get(tuple(way), 0) + 1
    quota = max(OF_A_WAY, _quota(list(left.values()), OLDER))
    few = []
    for number, value, ns in older:
        left[number, value] -= 1
        if left[number, value] < quota:
            few.append((number, value, ns))
        else:
            since[number] = max(since[number], ns + 1)
    for number, _, ns in few[:-OLDER]:
        since[number] = max(since[number], ns + 1)
    return few[-OLDER:] + newest


def _line(code, offset):
    """Of an instruction."""
    return next((line for start, end, line in code.co_lines() if start <= offset < end and line), -1)


def _copied(ring):
    for _ in range(5):
        try:
            return list(ring)
        except RuntimeError:  # a thread of the job added to it meanwhile
            continue
    return []


def _text(data):
    return b64encode(data).decode("ascii")


def _as_compiled(code, bytecode):
    """``bytecode`` without the mark of who watches calls."""
    plain, found = code.co_code, bytearray(bytecode)
    for at in range(0, len(plain), 2):
        if plain[at] == RESUME and found[at] not in STARTED:
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


def _lines(code, places):
    """(the lines that the interpreter's counters could tell of, those with counters of jumps as well).

    Of others (`return 0`, `continue`) the recorder knows more than whoever reads which lines have run has learned to
    weigh: that both ranks of a pair have run one says nothing of the last round.
    """
    plain = code.co_code + b"\1\1"
    counted = {places[at // 2][0] for at in range(0, len(plain) - 2, 2) if plain[at] and not plain[at + 2]}
    steady = {places[at // 2][0] for at in _counting(code)}
    return sorted(steady - {None}), counted - {None}


def _lines_of_a_call(code):
    plain, places = code.co_code, list(code.co_positions())
    begins = next((at for at in range(0, len(plain), 2) if plain[at] not in BEGINNING), 0)
    return sorted({place[0] for place in places[begins // 2 :]} - {None, 0})


def _catching_all(places, offsets):
    """`except:`, as a test that is always true."""
    for offset in offsets.values():
        line, last, column, end = (-1 if part is None else part for part in places[offset // 2 + 1])
        yield [line, column, last, end], "TF", offset, (offset + 1, None)


def _branches(code, places):
    """([line, column, last line, end column], values, offset, slots) of each branch: without a jump, and with one."""
    plain = code.co_code
    argument = 0
    for at in range(0, len(plain), 2):
        operation = plain[at]
        argument = argument << 8 | plain[at + 1]
        if operation in BRANCHES:
            onwards = at + 2
            while onwards < len(plain) and not plain[onwards]:  # its cache
                onwards += 2
            line, last, column, end = (-1 if part is None else part for part in places[at // 2])
            jumped = onwards + 2 * argument
            if NOT_TAKEN is not None and operation in JUMPS:
                if plain[onwards : onwards + 1] != NOT_TAKEN:
                    continue  # torch.compile's: of it CPython 3.14 tells only where it jumps
                onwards += 2
            yield [line, column, last, end], BRANCHES[operation], at, (slot(at, onwards), slot(at, jumped))
        if operation != EXTENDED_ARG:
            argument = 0
