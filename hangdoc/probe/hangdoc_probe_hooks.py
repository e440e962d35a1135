"""The probe's hooks: methods of c10d's pybind classes, so that every Python caller is seen, prebound or not.

Each replacement carries the name and the first parameter of what it replaces: pybind's trampolines recognize
a call that comes from an override by exactly these two, and would otherwise call us for ever
(``get_type_override``, pybind11 2.x and 3.x). Seen with torch 2.13.0.
"""

from __future__ import annotations

import sys
import time
import types
import weakref
from _thread import get_ident

import hangdoc_probe
from hangdoc_probe import MOST_GROUPS, count, pack_stack, started

_MAKER = "_new_process_group_helper"


def patch(state):
    """Put the hooks in, where this torch has the methods and the watch wants what they record."""
    from torch._C import _distributed_c10d as c10d

    hide_from_compiler(*globals().values(), *vars(hangdoc_probe).values())
    group = c10d.ProcessGroup
    unwanted = set()
    if not hangdoc_probe.records(state.settings, "messages"):
        unwanted |= {"send", "recv", "recv_anysource", "monitored_barrier"}
    if not hangdoc_probe.records(state.settings, "store"):
        unwanted |= {"get", "wait", "multi_get", "queue_pop"}
    if hangdoc_probe.records(state.settings, "phases"):
        import hangdoc_probe_phases

        state.phases = hangdoc_probe_phases.Phases(state.ring.maxlen)
        hangdoc_probe_phases.install(state.phases, hide_from_compiler)
    for owner, name, make in (
        (getattr(c10d, "TCPStore", None), "__init__", _store_constructor),
        (getattr(c10d, "FileStore", None), "__init__", _store_constructor),
        (getattr(c10d, "HashStore", None), "__init__", _store_constructor),
        (getattr(c10d, "ProcessGroupGloo", None), "__init__", _backend_constructor),
        (getattr(c10d, "ProcessGroupNCCL", None), "__init__", _backend_constructor),
        (group, "__init__", _group_constructor),
        (group, "_set_group_name", _group_name_setter),
        (group, "split_group", _group_splitter),
        (group, "send", _point_to_point("send", "dstRank")),
        (group, "recv", _point_to_point("recv", "srcRank")),
        (group, "recv_anysource", _point_to_point("recv_anysource", None)),
        (group, "monitored_barrier", _monitored_barrier),
        (group, "broadcast", _rooted("broadcast")),
        (group, "reduce", _rooted("reduce")),
        (group, "scatter", _rooted("scatter")),
        (group, "gather", _rooted("gather")),
        (c10d.Store, "get", _store_wait("get")),
        (c10d.Store, "wait", _store_wait("wait")),
        (c10d.Store, "multi_get", _store_wait("multi_get")),
        (c10d.Store, "queue_pop", _store_wait("queue_pop")),
    ):
        original = owner.__dict__.get(name) if owner is not None else None
        if original is not None and name not in unwanted:
            replacement = _disguised(make(original), original, owner, name)
            hide_from_compiler(replacement)
            setattr(owner, name, replacement)


def _disguised(replacement, original, owner, name):
    """Give ``replacement`` the names and the docstring by which pybind's trampolines and help() know a method."""
    replacement.__name__ = name
    replacement.__qualname__ = f"{owner.__name__}.{name}"
    names = {"co_name": name}
    if hasattr(replacement.__code__, "co_qualname"):  # Python 3.11
        names["co_qualname"] = replacement.__qualname__
    replacement.__code__ = replacement.__code__.replace(**names)
    replacement.__module__ = owner.__module__
    replacement.__doc__ = getattr(original, "__doc__", None)
    return replacement


def hide_from_compiler(*objects):
    """Keep torch.compile away from our functions and what they call: after a graph break it would compile these
    frames as it does the user's, and fail at ``sys._getframe``.

    This is what torch._dynamo.disable and skip_code do, without importing torch._dynamo (torch 2.13.0; older
    ones have ``skip_code`` in C, read, not run). Raises where a torch has neither.
    """
    from torch._C._dynamo import eval_frame

    if hasattr(eval_frame, "set_code_exec_strategy"):
        skip = eval_frame._FrameAction.SKIP
        strategy = eval_frame._FrameExecStrategy(skip, skip)

        def hide(code):
            eval_frame.set_code_exec_strategy(code, strategy)

    else:
        hide = eval_frame.skip_code
    for function in objects:
        if type(function) is types.FunctionType:
            function._torchdynamo_disable = True
            hide(function.__code__)


# Waits on the store. All that the hooks do is inside a try: no error of theirs reaches the user's code.


def _began(operation, keys, frame):
    """Note a call that may wait on the rendezvous store. Returns (the notes, the key of this one), for ``_ended``."""
    try:
        state = hangdoc_probe.STATE
        if state is None:
            return None
        state.store_calls += 1
        thread = get_ident()
        # Calls nest (a constructor that gets), but no thread is twice in the same one.
        key = thread, operation
        state.store_waits[key] = operation, keys, pack_stack(frame), time.time_ns(), thread
        return state.store_waits, key
    except Exception:
        return None


def _ended(note):
    if note is not None:
        note[0].pop(note[1], None)


def _store_constructor(original):
    def replacement(self, *args, **kwargs):
        frame = sys._getframe(1)
        started(frame)
        host = kwargs.get("host_name", args[0] if args else "")
        port = kwargs.get("port", args[1] if len(args) > 1 else "")
        note = _began("connect", (host, port), frame)
        try:
            original(self, *args, **kwargs)
        finally:
            _ended(note)

    return replacement


def _backend_constructor(original):
    def replacement(self, *args, **kwargs):
        frame = sys._getframe(1)
        started(frame)
        note = _began("group", (_new_group(frame)[0],), frame)
        try:
            original(self, *args, **kwargs)
        finally:
            _ended(note)

    return replacement


def _store_wait(operation):
    def make(original):
        def replacement(self, *args, **kwargs):
            keys = args[0] if args else ()
            note = _began(operation, (keys,) if type(keys) is str else keys, sys._getframe(1))
            try:
                return original(self, *args, **kwargs)
            finally:
                _ended(note)

        return replacement

    return make


# Groups


def _group_constructor(original):
    def replacement(self, *args, **kwargs):
        frame = sys._getframe(1)
        started(frame)
        original(self, *args, **kwargs)
        _learn_rank(args, frame)

    return replacement


def _learn_rank(args, frame):
    """``args`` end with rank and size. The default group is made first, and its rank is the global one."""
    try:
        world = sys.modules["torch.distributed.distributed_c10d"]._world
        state = hangdoc_probe.STATE
        if state is None or frame.f_code.co_name != _MAKER or len(args) < 2 or world.default_pg is not None:
            return
        rank, size = count(args[-2]), count(args[-1])
        if rank is not None and size:
            state.rank, state.world_size = rank, size
    except Exception:
        return


def _group_name_setter(original):
    def replacement(self, *args, **kwargs):
        original(self, *args, **kwargs)
        _made(self, sys._getframe(1))

    return replacement


def _group_splitter(original):
    def replacement(self, *args, **kwargs):
        group = original(self, *args, **kwargs)
        _made(group, sys._getframe(1))
        return group

    return replacement


def _made(group, frame):
    try:
        state = hangdoc_probe.STATE
        if state is None or group is None:
            return
        name = str(group.group_name)
        state.groups.pop(name, None)
        state.groups[name] = (*_new_group(frame)[1:], pack_stack(frame))
        if len(state.groups) > MOST_GROUPS:
            state.groups.pop(next(iter(state.groups)), None)
    except Exception:
        return


def _new_group(frame):
    """(name, global ranks, description, backend) of the group that c10d makes in ``frame``; empty if none.

    Read here because destroy_process_group forgets them, and a rank that ends is asked after that.
    """
    try:
        if frame.f_code.co_name == _MAKER:
            values = frame.f_locals
            ranks, size = values.get("global_ranks_in_group"), count(values.get("group_size"))
            # c10d passes no ranks for the default group, which has them all.
            members = [rank for rank in map(count, ranks or range(size or 0)) if rank is not None]
            return str(values.get("group_name")), members, values.get("group_desc"), str(values.get("backend"))
    except Exception:  # an unknown way to make groups
        pass
    return "", [], "", ""


# Point to point. gloo's flight recorder leaves these out (torch 2.13.0).


def _issued(group, op, peer, tag, frame):
    """A ring entry: [op, group, op_id, peer (in the group), tag, stack, ns, thread, returned, work]."""
    try:
        state = hangdoc_probe.STATE
        if state is None:
            return None
        name, op_id = "", -1
        try:
            name = group.group_name
            # gloo numbers collectives and point-to-point calls together and counts up in the call.
            op_id = group._get_sequence_number_for_group() + 1
        except Exception:  # a backend without numbers or names
            pass
        entry = [op, name, op_id, peer, tag, pack_stack(frame), time.time_ns(), get_ident(), False, None]
        state.ring.append(entry)
        state.point_to_points += 1
        return entry
    except Exception:
        return None


def _returned(entry, work):
    """A weak reference: the ring must not keep the user's tensors alive."""
    if entry is not None:
        try:
            entry[9] = weakref.ref(work) if work is not None else None
        except Exception:  # a work type that takes no weak reference
            entry[9] = None
        entry[8] = True


def _point_to_point(op, peer_name):
    def make(original):
        def replacement(self, *args, **kwargs):
            if peer_name is None:
                peer, tag = -1, args[1] if len(args) > 1 else 0
            else:
                peer = args[1] if len(args) > 1 else kwargs.get(peer_name, -1)
                tag = args[2] if len(args) > 2 else kwargs.get("tag", 0)
            entry = _issued(self, op, peer, tag, sys._getframe(1))
            work = None
            try:
                work = original(self, *args, **kwargs)
                return work
            finally:
                _returned(entry, work)

        return replacement

    return make


def _rooted(op):
    """The recorder has these calls without their root, which all ranks must agree on: ``peer`` keeps it."""

    def make(original):
        def replacement(self, *args, **kwargs):
            root = getattr(args[-1] if args else kwargs.get("opts"), "rootRank", None)
            if root is not None:
                _issued(self, op, root, 0, sys._getframe(1))
            return original(self, *args, **kwargs)

        return replacement

    return make


def _monitored_barrier(original):
    def replacement(self, *args, **kwargs):
        entry = _issued(self, "monitored_barrier", -1, 0, sys._getframe(1))
        try:
            return original(self, *args, **kwargs)
        finally:
            _returned(entry, None)

    return replacement
