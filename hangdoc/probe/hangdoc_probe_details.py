"""The probe's long answer, asked for after a stall and written at exit."""

from __future__ import annotations

import os
import platform
import sys
import types
from _thread import get_ident
from opcode import opmap

import hangdoc_probe_tasks
import hangdoc_probe_traces
import hangdoc_probe_typed
from hangdoc_probe import library_roots

# Bounds of an answer. Judgement.
MOST_ATTRIBUTES = 400
MOST_KEYS = 64
MOST_MODULES = 2000
STEPS = 2  # attributes beyond one of `self` that the code names: `self.plan` → `self.plan.epoch.last`
OPTIMIZED = 1  # co_flags: a function, whose locals are no namespace
OURS_AND_THE_FRAMES = 3  # references: the frame's, our variable's, getrefcount's argument
LONGEST_TEXT = 300
LONGEST_MESSAGE = 2000
MOST_CHAINED = 4  # exceptions that the uncaught one was raised from
STORE_ATTR = opmap["STORE_ATTR"]


class _Stacks:
    """Each different stack once, as [file, line, function] innermost first."""

    def __init__(self):
        self.known = {}
        self.listed = []
        self.lines = {}

    def add(self, packed):
        if not packed:
            return -1
        # By identity: hashing a code object walks its constants.
        key = tuple(id(item) if index % 2 == 0 else item for index, item in enumerate(packed))
        if key not in self.known:
            self.known[key] = len(self.listed)
            pairs = zip(packed[::2], packed[1::2], strict=True)
            self.listed.append([[code.co_filename, self._line(code, at), code.co_name] for code, at in pairs])
        return self.known[key]

    def _line(self, code, instruction):
        key = id(code), instruction
        if key not in self.lines:
            self.lines[key] = _line_of(code, instruction)
        return self.lines[key]


def _line_of(code, instruction):
    for start, end, line in code.co_lines():
        if start <= instruction < end and line is not None:
            return line
    return code.co_firstlineno


def collect(state, header, attributes, newest):
    """Add to ``header`` what JSON can hold: the newest point-to-point calls (None: all), waits, …"""
    stacks = _Stacks()
    ring = _copied(state.ring)[-newest:] if newest else _copied(state.ring)
    # Counted after the copy: a call that came meanwhile may have pushed an older one out.
    header["forgotten"] = max(0, state.point_to_points - len(ring))
    groups = _groups(state, stacks)
    living = {_text(name) for name in list(sys.modules["torch.distributed.distributed_c10d"]._world.pg_names.values())}
    header["destroyed"] = [row[0] for row in groups if row[0] not in living]
    members = {row[0]: row[1] for row in groups}
    header["group_table"] = groups
    header["point_to_point_calls"] = [_point_to_point(entry, members, stacks) for entry in ring]
    header["store_wait_calls"] = [_store_wait(entry, stacks) for entry in list(state.store_waits.values())]
    header["phases"] = _copied(state.phases.rows) if state.phases is not None else []
    header["counts_lines"] = state.lines is not None and state.lines.short is not None
    header["first_store"] = stacks.add(state.first_store)
    header["branches"] = _branches(state) if attributes else {}
    threads = [(thread, top) for thread, top in list(sys._current_frames().items()) if thread != get_ident()]
    suspended = _suspended(threads) if attributes else []
    header["attributes"] = _values(threads, suspended) if attributes else []
    header["traces"] = _traces(threads) if attributes else []
    handled = _handled()
    header["handled"] = [_type_name(handled), raised_at(handled.__traceback__)] if handled is not None else []
    header["handled_message"], header["handled_from"] = message_of(handled), raised_from(handled)
    del handled
    header["suspended"] = [[thread, stacks.add(_packed(frames))] for thread, frames in suspended]
    header["stacks"] = stacks.listed
    header["typed_in"] = hangdoc_probe_typed.typed_in(stacks.listed, threads) if attributes else []
    del threads
    header["python"] = platform.python_version()
    header["torch"] = str(sys.modules["torch"].__version__)
    header["library_roots"] = library_roots()
    header["modules"] = _modules()
    header["cwd"] = _cwd()
    return header


def _copied(ring):
    for _ in range(5):
        try:
            return list(ring)
        except RuntimeError:  # a thread of the job added to it meanwhile
            continue
    return []


def _text(value):
    return str(value)[:LONGEST_TEXT] if type(value) in (str, int, float) else "?"


def _whole(value):
    try:
        return int(value)
    except (TypeError, ValueError):
        return -1


def _point_to_point(entry, members, stacks):
    op, name, op_id, peer, tag, stack, at, thread, returned, work = entry
    members = members.get(name) or []
    peer = _whole(peer)
    done = bool(returned)
    pending = work() if done and work is not None else None
    if pending is not None and type(pending).__module__.startswith(("torch._C", "torch.distributed")):
        done = bool(pending.is_completed())
    peer = members[peer] if 0 <= peer < len(members) else peer
    return [op, name, op_id, peer, _whole(tag), stacks.add(stack), at, done, thread]


def _store_wait(entry, stacks):
    operation, keys, stack, since, thread = entry
    keys = [_text(key) for key in list(keys)[:MOST_KEYS]] if type(keys) in (list, tuple) else []
    return [operation, keys, stacks.add(stack), since, thread]


def _groups(state, stacks):
    """Living groups, then destroyed ones: [name, global ranks, description, backend, stack]."""
    world = sys.modules["torch.distributed.distributed_c10d"]._world
    remembered = dict(state.groups)
    table = []
    for group, name in list(world.pg_names.items()):
        made = remembered.pop(name, ([], "", "", None))
        ranks = world.pg_group_ranks.get(group) or {}
        members = sorted(ranks, key=ranks.get) or made[0]
        try:
            description, backend = group.group_desc, world.pg_map[group][0]
        except Exception:  # a group of an unusual make
            description, backend = made[1:3]
        table.append(_group_row(name, members, description, backend, stacks.add(made[3])))
    for name, (members, description, backend, stack) in remembered.items():
        table.append(_group_row(name, members, description, backend, stacks.add(stack)))
    return table


def _group_row(name, members, description, backend, stack):
    return [_text(name), [_whole(rank) for rank in members], _text(description), _text(str(backend)), stack]


# Values and places


def _cwd():
    try:
        return os.getcwd()
    except OSError:
        return ""


def _modules():
    """The files of what has been imported, libraries left out."""
    roots = tuple(root.rstrip("/") + "/" for root in library_roots())
    # Past a lazy module's own ``__getattr__``.
    files = [instance_names(module).get("__file__") for module in list(sys.modules.values())]
    return [file for file in files if type(file) is str and file.endswith(".py") and not file.startswith(roots)][
        :MOST_MODULES
    ]


def _handled():
    """The exception that the main thread is in the except or finally suite of, or None."""
    current = getattr(sys, "_current_exceptions", dict)().get(sys.modules["threading"].main_thread().ident)
    return current[1] if type(current) is tuple else current  # up to Python 3.11: what exc_info() gives


def _type_name(error):
    return type.__dict__["__name__"].__get__(type(error))


def raised_at(step):
    """A traceback as [file, line, function] innermost first."""
    frames = []
    while step is not None and len(frames) < 4096:
        code = step.tb_frame.f_code
        frames.append([code.co_filename, step.tb_lineno, code.co_name])
        step = step.tb_next
    return frames[::-1][:256]


def message_of(error):
    """The exception's own text, where it is made of plain values: no code of the user's runs for it."""
    if not isinstance(error, BaseException):
        return ""
    arguments = BaseException.__dict__["args"].__get__(error)
    shown = [value for value in arguments if value is None or type(value) in (str, int, float, bool)]
    kinds = type.__dict__["__mro__"].__get__(type(error))
    maker = next(kind for kind in kinds if "__str__" in type.__dict__["__dict__"].__get__(kind))
    if len(shown) == len(arguments) and maker in (BaseException, KeyError, ImportError):
        text = maker.__str__(error)
    else:
        text = ": ".join(str(value) for value in shown)
    path = OSError.__dict__["filename"].__get__(error) if isinstance(error, OSError) else None
    text += f": '{path}'" if type(path) is str else ""
    half = LONGEST_MESSAGE // 2
    return text if len(text) <= LONGEST_MESSAGE else f"{text[:half]} … {text[-half:]}"


def raised_from(error):
    """[type, text, place, whether by `from`] of what it was raised from, or while handling, the nearest first."""
    found = []
    parts = BaseException.__dict__
    while isinstance(error, BaseException) and len(found) < MOST_CHAINED:
        cause = parts["__cause__"].__get__(error)
        context = None if parts["__suppress_context__"].__get__(error) else parts["__context__"].__get__(error)
        direct, error = cause is not None, cause if cause is not None else context
        if error is not None:
            step = parts["__traceback__"].__get__(error)
            found.append([_type_name(error), message_of(error), raised_at(step), direct])
    return found


def _branches(state):
    try:
        if state.branches is None:
            return {}
        import hangdoc_probe_outcomes

        return hangdoc_probe_outcomes.told(state.branches)
    except Exception:  # code of an unusual make
        return {}


def _suspended(threads):
    try:
        return hangdoc_probe_tasks.suspended(threads)
    except Exception:  # a loop or a task of an unusual make
        return []


def _packed(frames):
    return [part for frame in frames for part in (frame.f_code, frame.f_lasti)]


def _outwards(frame):
    for _ in range(256):
        if frame is None:
            return
        yield frame
        frame = frame.f_back


def _values(threads, suspended):
    """What the user's frames of all threads can see and py-spy does not show: globals, and attributes of ``self`` and
    of locals, that the frame's code names. Plain values only; runs no user code."""
    found = []
    roots = tuple(root.rstrip("/") + "/" for root in library_roots())
    for frames in [*(_outwards(top) for _, top in threads), *(frames for _, frames in suspended)]:
        for frame in frames:
            code = frame.f_code
            if not code.co_filename.startswith((*roots, "<")):
                place = (code.co_filename, frame.f_lineno, code.co_name)
                found += [[*place, name, shown, owner] for owner, name, shown in _seen_by(frame, code, roots)]
            if len(found) >= MOST_ATTRIBUTES:
                return found[:MOST_ATTRIBUTES]
    return found


def _traces(threads):
    """What the objects that the main thread's frames reach have counted and collected."""
    main = sys.modules["threading"].main_thread().ident
    stacks = [_outwards(top) for thread, top in threads if thread == main]
    try:
        return hangdoc_probe_traces.traces(stacks, _locals, instance_names, library_roots())
    except Exception:  # an object of an unusual make
        return []


def _seen_by(frame, code, roots):
    """(owner, name, value): 'self', 'warm', 'True' for `self.warm`; '' for a global; 'plan.due()', 'every', '5' for
    what the method of `plan.due(step)` reads."""
    used = _names_in(code)
    for name, value in _locals(frame, code).items():
        steps = STEPS if name == "self" else STEPS - 1
        yield from plain(name, instance_names(value), used, steps)
        yield from _read_by_methods(name, value, used, roots, steps - 1)
    if type(frame.f_globals) is dict:
        yield from plain("", frame.f_globals, used)


def _locals(frame, code):
    """The locals of a function's frame, by name; empty for a frame with a tracer and for a module or class body."""
    if frame.f_trace is not None or not code.co_flags & OPTIMIZED:
        return {}
    shown = frame.f_locals
    found = {name: shown[name] for name in code.co_varnames + code.co_cellvars if name in shown}
    # Up to Python 3.12 the frame keeps this dictionary, and the objects in it, until it ends. It is emptied, unless the
    # job itself has asked for it: then the job holds a reference as well.
    if type(shown) is dict and sys.getrefcount(shown) <= OURS_AND_THE_FRAMES:
        shown.clear()
    return found


def _read_by_methods(owner, value, used, roots, steps):
    """The plain attributes that the user's methods and properties with names in ``used`` read and do not set, for
    ``value`` and for its attributes that are named, too."""
    mine = instance_names(value)
    for name in sorted(used) if mine else ():
        code = _method(type(value), name)
        if code is not None and not code.co_filename.startswith((*roots, "<")):
            yield from plain(f"{owner}.{name}()", mine, _names_in(code) - _set_by(code), 1)
        inner = mine.get(name, mine)
        if steps and inner is not mine:
            yield from _read_by_methods(f"{owner}.{name}", inner, used, roots, steps - 1)


def _method(kind, name):
    """The code of the function or property of that name; None if it is neither, as a method written in C."""
    for base in type.__dict__["__mro__"].__get__(kind):
        found = type.__dict__["__dict__"].__get__(base).get(name)
        if found is not None:
            function = found.fget if type(found) is property else found
            return function.__code__ if type(function) is types.FunctionType else None
    return None


def _set_by(code):
    """The attributes that a function assigns to."""
    pairs = zip(code.co_code[::2], code.co_code[1::2], strict=True)
    return {
        code.co_names[argument]
        for operation, argument in pairs
        if operation == STORE_ATTR and argument < len(code.co_names)
    }


def _names_in(code, deep=3):
    """The globals and attributes that a function names, in the functions that it holds as well."""
    inner = (_names_in(one, deep - 1) for one in code.co_consts if deep and type(one) is types.CodeType)
    names = {*code.co_names, *(name for names in inner for name in names)}
    return {name for name in names if not name.startswith("__")}


def plain(owner, names, used, steps=STEPS):
    """The plain ones among ``names`` that are ``used``, and up to ``steps`` attributes further."""
    for name in sorted(used):
        value = names.get(name, names)
        kind = type(value)
        if kind is str:
            shown = "'…'"
        elif value is None or kind in (bool, float) or (kind is int and value.bit_length() <= 64):
            shown = repr(value)
        else:
            if steps and value is not names:
                yield from plain(f"{owner}.{name}" if owner else name, instance_names(value), used, steps - 1)
            continue
        yield owner[:LONGEST_TEXT], name[:LONGEST_TEXT], shown


def instance_names(owner):
    """The ``__dict__`` of an instance or module itself, past any property or ``__getattribute__`` of the user's."""
    for base in type.__dict__["__mro__"].__get__(type(owner)):
        own = type.__dict__["__dict__"].__get__(base).get("__dict__")
        if own is not None:
            mine = type(own) in (types.GetSetDescriptorType, types.MemberDescriptorType)
            found = own.__get__(owner) if mine else None
            return found if type(found) is dict else {}
    return {}
