"""The probe's answers: one plain daemon thread that answers over a unix socket, and a note at exit.

Protocol, version 1: the client sends one JSON object per line, ``{"q": "counters"}`` or ``{"q": "details"}``.
The answer is one line of JSON whose ``bytes`` is the number of raw bytes that follow: c10d's own JSON of counters,
or the flight recorders' pickles, one after the other (``parts`` has their sizes). Two notes have that form as well:
``<pid>.rank``, from the start, says which rank this is; ``<pid>.bye`` is a details answer left at exit.

The thread is plain (``_thread``): ``threading``, profilers and tracers do not know it, and nothing joins it.
"""

from __future__ import annotations

import atexit
import ctypes
import functools
import gc
import json
import os
import select
import socket
import struct
import sys
import threading
import time
from _thread import start_new_thread

import hangdoc_probe
import hangdoc_probe_details
from hangdoc_probe_recorders import c10d, no_inductor, recorded

PROTOCOL = 1
LONGEST_PATH = 107  # bytes of a unix socket's path (unix(7)), without the final zero
# Limits on clients. Judgement: a watch and a few attaches ask, in short lines.
MOST_CLIENTS = 8
LONGEST_REQUEST = 4096
STALLED_CLIENT_S = 30.0
PR_SET_PTRACER = 0x59616D61  # <linux/prctl.h>
BYE_POINT_TO_POINTS = 100  # the newest; the note is written while the process exits
BYE_MOST_CALLS = 4000  # a longer history would delay the exit


def start(state):
    """Bind, listen, start the thread. If anything fails, the job runs as it would without the probe."""
    path = os.path.join(state.folder, f"{state.pid}.sock")
    if len(os.fsencode(path)) > LONGEST_PATH:
        return
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        if os.path.lexists(path):
            os.unlink(path)  # left by an earlier process of the same number, or by us before an exec
        listener.bind(path)
        os.chmod(path, 0o600)
        listener.listen(16)
        listener.setblocking(False)
    except OSError:
        listener.close()
        return
    state.listener = listener
    _introduce(state)
    state.allow = _permission(state.folder)
    state.allow()
    _catch_faults(state)
    os.register_at_fork(after_in_child=lambda: _forget(state))
    atexit.register(_at_exit, state)
    _at_exit_of_multiprocessing(state)
    start_new_thread(_serve, (state,))


def _introduce(state):
    """Leave ``<pid>.rank``: a process that is stopped, or whose GIL is held, cannot say which rank it is."""
    try:
        with open(os.path.join(state.folder, f"{state.pid}.rank"), "wb", opener=_private) as file:
            file.write(_framed(_who(state), []))
    except OSError:  # a full disk
        return


def _catch_faults(state):
    try:
        import hangdoc_probe_faults

        hangdoc_probe_faults.start(state)
    except Exception:  # a full disk, a system without /proc
        return


def _permission(folder):
    """The function to call so that the watcher may look into this process.

    Yama (ptrace_scope 1) lets only an ancestor do so unless we name another; EINVAL without Yama. All is
    looked up here: a forked child calls it again, and must not open libraries.
    """
    try:
        with open(os.path.join(folder, "watcher.pid"), "rb") as file:
            watcher = int(file.read(32))
        prctl = ctypes.PyDLL(None).prctl
    except (OSError, ValueError, AttributeError):
        return lambda: None
    return functools.partial(prctl, PR_SET_PTRACER, ctypes.c_ulong(watcher), 0, 0, 0)


def _forget(state):
    """In a forked child: it is not the rank. It becomes one of its own if it makes a store."""
    try:
        for held in [state.listener, *(client.socket for client in state.clients.values())]:
            if held is not None:
                held.close()
        hangdoc_probe.STATE = fresh = hangdoc_probe.State(state.folder, state.settings)
        if state.phases is not None:  # torch's functions, as they are hooked, fill these
            state.phases.forget()
            fresh.phases = state.phases
        if state.faults is not None:
            state.faults.in_child()
            fresh.faults = state.faults
        state.allow()
    except Exception:  # never into the user's fork
        hangdoc_probe.STATE = None


class _Client:
    __slots__ = ("answer", "asked", "moved", "socket")

    def __init__(self, connection):
        self.socket = connection
        self.asked = b""
        self.answer = memoryview(b"")
        self.moved = time.monotonic()


def _serve(state):
    """Never blocks on a client. Ends for good on anything it did not expect."""
    try:
        poll = select.poll()
        poll.register(state.listener, select.POLLIN)
        identity = _inode(state.listener.fileno())
        busy = False
        while state.pid == os.getpid():
            events = poll.poll(1000 if busy else None)
            # The collector runs the job's finalizers in whatever thread allocates, and they may block or
            # communicate: not in ours. (What poll returns is all that is made before.)
            collecting = gc.isenabled()
            gc.disable()
            try:
                if state.faults is not None:
                    state.faults.look_after()
                if _inode(state.listener.fileno()) != identity:
                    return  # the job closed all its descriptors; the number may be someone else's by now
                busy = _attend_all(state, poll, events)
            finally:
                if collecting:
                    gc.enable()
    except Exception:  # silence is an answer too: the watcher goes on from outside
        return


def _attend_all(state, poll, events):
    """True while an answer is on its way."""
    for descriptor, event in events:
        if descriptor == state.listener.fileno():
            _accept(state, poll)
        else:
            _attend(state, poll, descriptor, event)
    now = time.monotonic()
    waiting = [number for number, client in state.clients.items() if client.answer]
    for descriptor in waiting:
        if now - state.clients[descriptor].moved > STALLED_CLIENT_S:
            _drop(state, poll, descriptor)
    return bool(waiting)


def _inode(descriptor):
    try:
        return os.fstat(descriptor).st_ino
    except OSError:
        return None


def _accept(state, poll):
    try:
        connection, _ = state.listener.accept()
    except OSError:
        return
    try:
        credentials = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
        if struct.unpack("3i", credentials)[1] not in (0, os.geteuid()):
            connection.close()
            return
        connection.setblocking(False)
        if len(state.clients) >= MOST_CLIENTS:
            _drop(state, poll, min(state.clients, key=lambda known: state.clients[known].moved))
        poll.register(connection, select.POLLIN)
    except OSError:
        connection.close()
        return
    state.clients[connection.fileno()] = _Client(connection)


def _drop(state, poll, descriptor):
    client = state.clients.pop(descriptor, None)
    if client is not None:
        poll.unregister(descriptor)
        client.socket.close()


def _attend(state, poll, descriptor, event):
    client = state.clients.get(descriptor)
    if client is None:
        return
    try:
        if event & select.POLLOUT:
            client.answer = client.answer[client.socket.send(client.answer) :]
            client.moved = time.monotonic()
        elif event & select.POLLIN:
            received = client.socket.recv(LONGEST_REQUEST)
            client.asked += received
            client.moved = time.monotonic()
            if not received or len(client.asked) > LONGEST_REQUEST:
                _drop(state, poll, descriptor)
                return
        else:
            _drop(state, poll, descriptor)
            return
        if not client.answer and b"\n" in client.asked:
            with state.answering:
                client.answer = memoryview(_answer(state, client))
        poll.modify(descriptor, select.POLLOUT if client.answer else select.POLLIN)
    except BlockingIOError:
        return
    except Exception:  # a client that went away, an unknown question
        _drop(state, poll, descriptor)


def _answer(state, client):
    line, client.asked = client.asked.split(b"\n", 1)
    question = json.loads(line)["q"]
    if question == "counters":
        return _framed(counters(state), recorded(state, "_dump_%s_trace_json", False, False))
    if question in ("details", "history"):
        header, parts = _details(state, attributes=question == "details")
        header.update(_uncaught())  # a process that failed may still wait for its threads
        return _framed(header, parts)
    raise ValueError(question)


def _details(state, attributes=True, recorder=True, newest=None):
    header = hangdoc_probe_details.collect(state, counters(state), attributes, newest)
    # A program may set these itself: /proc shows only what it was started with.
    header["meets_at"] = {name: os.environ[name] for name in ("MASTER_ADDR", "MASTER_PORT") if name in os.environ}
    parts = []
    if recorder:
        with no_inductor():
            parts = recorded(state, "_dump_%s_trace", True, True, False)
    return header, parts


def _framed(header, parts):
    header["parts"] = [len(part) for part in parts]
    header["bytes"] = sum(header["parts"])
    header["protocol"] = PROTOCOL
    return b"".join([json.dumps(header).encode("ascii", "replace"), b"\n", *parts])


# The contents of an answer


def _who(state):
    """Which rank answers here."""
    return {
        "pid": state.pid,
        "rank": state.rank,
        "world_size": state.world_size,
        "local_rank": hangdoc_probe.count(os.environ.get("LOCAL_RANK")),
        "restart": hangdoc_probe.count(os.environ.get("TORCHELASTIC_RESTART_COUNT")) or 0,
    }


def counters(state):
    """The cheap facts, taken once a second."""
    main = threading.main_thread().ident
    world = sys.modules["torch.distributed.distributed_c10d"]._world
    default = world.default_pg
    if default is not None:
        group = c10d().ProcessGroup  # not through a subclass of the user's
        state.rank, state.world_size = group.rank(default), group.size(default)
    return {
        **_who(state),
        "groups": len(world.pg_names),
        "initialized": default is not None,
        "point_to_points": state.point_to_points,
        "store_calls": state.store_calls,
        "in_store": any(thread == main for thread, _ in list(state.store_waits)),
        "sequences": _sequences(world),
    }


def _sequences(world):
    """Per group: its own count of what it issued, for backends that the recorder does not know."""
    found = {}
    for group, name in list(world.pg_names.items()):
        try:
            found[str(name)] = int(group._get_sequence_number_for_group())
        except Exception:  # a backend that does not count
            continue
    return found


# The note at exit


def _at_exit_of_multiprocessing(state):
    """A multiprocessing child swallows its exception, and a forked one ends by os._exit, past atexit."""
    util = sys.modules.get("multiprocessing.util")
    process = sys.modules.get("multiprocessing.process")
    if util is not None and process is not None and process.parent_process() is not None:
        util.Finalize(None, _at_exit, args=(state,), exitpriority=10)


def _at_exit(state):
    """Leave ``<pid>.bye``. The socket stays open: a watcher asks there what blocks the exit."""
    try:
        if not state.said_bye and state.pid == os.getpid():
            state.said_bye = True
            _leave_note(state)
    except Exception:  # the exit goes on
        return


def _leave_note(state):
    long = (hangdoc_probe.count(os.environ.get("TORCH_FR_BUFFER_SIZE")) or 0) > BYE_MOST_CALLS
    header, parts = _details(state, attributes=False, recorder=not long, newest=BYE_POINT_TO_POINTS)
    header.update(_uncaught())
    header["at"] = time.time()
    path = os.path.join(state.folder, f"{state.pid}.tmp")
    try:
        with open(path, "wb", opener=_private) as file:
            file.write(_framed(header, parts))
        os.replace(path, os.path.join(state.folder, f"{state.pid}.bye"))
    except OSError:  # a full disk
        os.unlink(path)


def _private(path, flags):
    return os.open(path, flags, 0o600)


def _uncaught():
    """The exception that ends the process: type, text and place, and those that it was raised from."""
    error = getattr(sys, "last_value", None)
    kind, step = getattr(sys, "last_type", None), getattr(sys, "last_traceback", None)
    if kind is None:
        # In a multiprocessing child's last finally; torch's spawn turns the exception into an exit status.
        error = sys.exc_info()[1]
        if type(error) is SystemExit and error.code not in (0, None):
            error = error.__context__
        if error is not None and type(error) is not SystemExit:
            kind, step = type(error), error.__traceback__
    if kind is None:
        return {"exception": None, "raised_at": []}
    return {
        "exception": type.__dict__["__name__"].__get__(kind),
        "raised_at": hangdoc_probe_details.raised_at(step),
        "message": hangdoc_probe_details.message_of(error),
        "raised_from": hangdoc_probe_details.raised_from(error),
    }
