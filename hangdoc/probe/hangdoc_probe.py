"""The probe's hooks: what runs inside a watched rank. Standard library and torch only; silent; never raises.

``torch.backends`` calls :func:`_autoload` at the end of ``import torch``. It only replaces a few methods of
c10d's pybind classes, so that *every* Python caller is seen however it imported them. The first store or
process group of a rank then starts the answering thread (``hangdoc_probe_serve``): agents, DataLoader workers
and compiler workers import torch too and make neither.

Each replacement carries the name and the first parameter of what it replaces: pybind's trampolines recognise
a call that comes from an override by exactly these two, and would otherwise call us for ever
(``get_type_override``, pybind11 2.x and 3.x). Seen with torch 2.13.0.
"""

from __future__ import annotations

import os
import sys
import time
import weakref
from _thread import allocate_lock, get_ident
from collections import deque

FOLDER_VARIABLE = "HANGDOC_PROBE"
RING = 1000
MOST_GROUPS = 4096
DEEPEST_STACK = 256

AGENT_FOLDERS = tuple(f"/torch/distributed/elastic/{name}/" for name in ("agent", "rendezvous", "utils"))
RANK_FILES = ("/torch/distributed/rendezvous.py", "/torch/distributed/distributed_c10d.py")

_SENT, _RETURNED = 0, 1


class State:
    """All that the probe knows about this process. Plain containers: the GIL makes each step atomic."""

    def __init__(self, folder):
        self.folder = folder
        self.pid = 0  # the process that answers; 0: nobody yet
        self.starting = allocate_lock()
        self.rank = None
        self.world_size = None
        self.ring = deque(maxlen=RING)
        self.point_to_points = 0
        self.store_calls = 0
        self.store_waits = {}
        self.groups = {}  # name -> (global ranks in group order, description, backend, packed stack)
        self.first_store = None
        self.listener = None
        self.clients = {}
        self.allow = None  # call it to let the watcher look into this process
        self.said_bye = False


STATE = None


def _autoload():
    """The entry point. Whatever goes wrong here must never break the user's ``import torch``."""
    global STATE  # noqa: PLW0603 - one process, one state
    try:
        folder = os.environ.get(FOLDER_VARIABLE)
        if STATE is None and folder and _is_ours(folder):
            STATE = State(folder)
            _turn_recorder_on()
            _patch()
    except Exception:  # the job goes on without us
        STATE = None


def _is_ours(folder):
    import stat

    found = os.lstat(folder)
    return stat.S_ISDIR(found.st_mode) and found.st_uid == os.geteuid() and not found.st_mode & 0o077


def _turn_recorder_on():
    """Off by default before torch 2.11; from 2.8 on the older name would print a deprecation warning."""
    import torch

    version = tuple(int(part) for part in torch.__version__.split(".")[:2])
    if version < (2, 8):
        os.environ.setdefault("TORCH_NCCL_TRACE_BUFFER_SIZE", "2000")
    elif version < (2, 11):
        os.environ.setdefault("TORCH_FR_BUFFER_SIZE", "2000")


def _patch():
    from torch._C import _distributed_c10d as c10d

    group = c10d.ProcessGroup
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
        (c10d.Store, "get", _store_wait("get")),
        (c10d.Store, "wait", _store_wait("wait")),
        (c10d.Store, "multi_get", _store_wait("multi_get")),
        (c10d.Store, "queue_pop", _store_wait("queue_pop")),
    ):
        original = owner.__dict__.get(name) if owner is not None else None
        if original is not None:
            setattr(owner, name, _disguised(make(original), original, owner, name))


def _disguised(replacement, original, owner, name):
    """Give ``replacement`` the looks that pybind's trampolines, help() and torch.compile go by."""
    replacement.__name__ = name
    replacement.__qualname__ = f"{owner.__name__}.{name}"
    names = {"co_name": name}
    if hasattr(replacement.__code__, "co_qualname"):  # Python 3.11
        names["co_qualname"] = replacement.__qualname__
    replacement.__code__ = replacement.__code__.replace(**names)
    replacement.__module__ = owner.__module__
    replacement.__doc__ = getattr(original, "__doc__", None)
    replacement._torchdynamo_disable = True  # what torch._dynamo.disable sets, without importing it
    return replacement


# Stacks


def pack_stack(frame):
    """(code, instruction, code, instruction, …), innermost first: cheap; lines are worked out later."""
    packed = []
    while frame is not None and len(packed) < 2 * DEEPEST_STACK:
        packed.append(frame.f_code)
        packed.append(frame.f_lasti)
        frame = frame.f_back
    return tuple(packed)


# Stores and groups


def _started(frame):
    """Called before a store or group constructor may block: begin to answer if this process is a rank."""
    state = STATE
    if state is None or state.pid == os.getpid() or not state.starting.acquire(False):
        return
    try:
        identity = _identity(frame)
        if identity is not None:
            state.pid = os.getpid()
            state.rank, state.world_size = identity
            state.first_store = pack_stack(frame)
            import hangdoc_probe_serve

            hangdoc_probe_serve.start(state)
    except Exception:  # the job goes on without us
        state.pid = os.getpid()
    finally:
        state.starting.release()


def _identity(frame):
    """(rank, world size), each None where nobody says; None for an agent of torchrun, which is no rank.

    The innermost frame of torch.distributed decides: an elastic agent makes its stores in AGENT_FOLDERS,
    a rank through init_process_group and a rendezvous handler (torch 2.13.0).
    """
    rank = world_size = None
    inside = False
    for _ in range(DEEPEST_STACK):
        if frame is None:
            break
        file = frame.f_code.co_filename
        if not inside and any(folder in file for folder in AGENT_FOLDERS):
            return None
        if file.endswith(RANK_FILES):
            inside = True
            values = frame.f_locals
            rank = _count(values.get("rank")) if rank is None else rank
            world_size = _count(values.get("world_size")) if world_size is None else world_size
        frame = frame.f_back
    if rank is None:
        rank = _count(os.environ.get("RANK"))
    if world_size is None:
        world_size = _count(os.environ.get("WORLD_SIZE"))
    return rank, world_size


def _count(value):
    try:
        number = int(value) if type(value) in (int, str) else -1
    except ValueError:
        return None
    return number if 0 <= number < 1 << 31 else None


class _Waiting:
    """Marks a call that may wait on the rendezvous store, for as long as it lasts."""

    __slots__ = ("key", "state")

    def __init__(self, operation, keys, frame):
        state = self.state = STATE
        if state is not None:
            state.store_calls += 1
            thread = get_ident()
            # Calls nest (a constructor that gets), but no thread is twice in the same one.
            self.key = thread, operation
            state.store_waits[self.key] = (operation, keys, pack_stack(frame), time.time_ns(), thread)

    def end(self):
        if self.state is not None:
            self.state.store_waits.pop(self.key, None)


def _store_constructor(original):
    def replacement(self, *args, **kwargs):
        frame = sys._getframe(1)
        _started(frame)
        host = kwargs.get("host_name", args[0] if args else "")
        port = kwargs.get("port", args[1] if len(args) > 1 else "")
        waiting = _Waiting("connect", (host, port), frame)
        try:
            original(self, *args, **kwargs)
        finally:
            waiting.end()

    return replacement


def _backend_constructor(original):
    def replacement(self, *args, **kwargs):
        frame = sys._getframe(1)
        _started(frame)
        name, *_ = _new_group(frame)
        waiting = _Waiting("group", (name,) if name else (), frame)
        try:
            original(self, *args, **kwargs)
        finally:
            waiting.end()

    return replacement


def _store_wait(operation):
    def make(original):
        def replacement(self, *args, **kwargs):
            keys = args[0] if args else ()
            waiting = _Waiting(operation, (keys,) if type(keys) is str else keys, sys._getframe(1))
            try:
                return original(self, *args, **kwargs)
            finally:
                waiting.end()

        return replacement

    return make


def _group_constructor(original):
    def replacement(self, *args, **kwargs):
        frame = sys._getframe(1)
        _started(frame)
        original(self, *args, **kwargs)
        state = STATE
        # The default group is made first, and its rank is the global one.
        if state is not None and frame.f_code.co_name == "_new_process_group_helper" and len(args) > 1:
            rank, size = _count(args[-2]), _count(args[-1])
            if rank is not None and size and _default_group() is None:
                state.rank, state.world_size = rank, size

    return replacement


def _group_name_setter(original):
    def replacement(self, *args, **kwargs):
        original(self, *args, **kwargs)
        if args:
            _made(args[0], sys._getframe(1))

    return replacement


def _group_splitter(original):
    def replacement(self, *args, **kwargs):
        group = original(self, *args, **kwargs)
        if group is not None:
            _made(getattr(group, "group_name", None), sys._getframe(1))
        return group

    return replacement


def _default_group():
    module = sys.modules.get("torch.distributed.distributed_c10d")
    return module._world.default_pg if module is not None else None


def _new_group(frame):
    """(name, global ranks, description, backend) of the group that c10d makes in ``frame``; empty if none.

    Read here because destroy_process_group forgets them, and a rank that ends is asked after that.
    """
    try:
        if frame.f_code.co_name == "_new_process_group_helper":
            values = frame.f_locals
            ranks, size = values.get("global_ranks_in_group"), _count(values.get("group_size"))
            # c10d passes no ranks for the default group, which has them all.
            members = [rank for rank in map(_count, ranks or range(size or 0)) if rank is not None]
            return values.get("group_name"), members, values.get("group_desc"), str(values.get("backend"))
    except Exception:  # an unheard-of way to make groups
        pass
    return "", [], "", ""


def _made(name, frame):
    state = STATE
    if state is not None and type(name) is str:
        _, members, description, backend = _new_group(frame)
        state.groups.pop(name, None)
        state.groups[name] = members, description, backend, pack_stack(frame)
        if len(state.groups) > MOST_GROUPS:
            state.groups.pop(next(iter(state.groups)), None)


def _group_name_setter(original):
    def replacement(self, *args, **kwargs):
        original(self, *args, **kwargs)
        if args:
            _made(args[0], sys._getframe(1))

    return replacement


def _group_splitter(original):
    def replacement(self, *args, **kwargs):
        group = original(self, *args, **kwargs)
        if group is not None:
            _made(getattr(group, "group_name", None), sys._getframe(1))
        return group

    return replacement


def _default_group():
    module = sys.modules.get("torch.distributed.distributed_c10d")
    return module._world.default_pg if module is not None else None


def _new_group(frame):
    """(name, global ranks, description, backend) of the group that c10d makes in ``frame``; empty if it does not.

    Read here because destroy_process_group forgets them, and a rank that ends is asked after that.
    """
    if frame.f_code.co_name != "_new_process_group_helper":
        return "", [], "", ""
    values = frame.f_locals
    ranks, size = values.get("global_ranks_in_group"), _count(values.get("group_size"))
    # c10d passes no ranks for the default group, which has them all.
    members = [rank for rank in map(_count, ranks or range(size or 0)) if rank is not None]
    return values.get("group_name"), members, values.get("group_desc"), str(values.get("backend"))


def _made(name, frame):
    state = STATE
    try:
        if state is not None and type(name) is str:
            _, members, description, backend = _new_group(frame)
            state.groups.pop(name, None)
            state.groups[name] = members, description, backend, pack_stack(frame)
            if len(state.groups) > MOST_GROUPS:
                state.groups.pop(next(iter(state.groups)), None)
    except Exception:  # an unheard-of way to make groups
        return


# Point to point. gloo's flight recorder leaves these out (torch 2.13.0).


def _issued(group, op, peer, tag, frame):
    """A ring entry: [op, group, op_id, peer (in the group), tag, stack, ns, thread, returned, work]."""
    state = STATE
    if state is None:
        return None
    try:
        name = group.group_name
        # gloo numbers collectives and point-to-point calls together and counts up in the call.
        op_id = group._get_sequence_number_for_group() + 1
    except Exception:  # a backend without numbers or names
        name, op_id = "", -1
    entry = [op, name, op_id, peer, tag, pack_stack(frame), time.time_ns(), get_ident(), _SENT, None]
    state.ring.append(entry)
    state.point_to_points += 1
    return entry


def _returned(entry, work):
    """A weak reference: the ring must not keep the user's tensors alive."""
    if entry is not None:
        try:
            entry[9] = weakref.ref(work) if work is not None else None
        except TypeError:  # a work type that takes no weak reference
            entry[9] = None
        entry[8] = _RETURNED


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


def _monitored_barrier(original):
    def replacement(self, *args, **kwargs):
        entry = _issued(self, "monitored_barrier", -1, 0, sys._getframe(1))
        try:
            return original(self, *args, **kwargs)
        finally:
            _returned(entry, None)

    return replacement
