"""The probe's start and state: what runs inside a watched rank. Standard library and torch only; silent.

``torch.backends`` calls :func:`_autoload` at the end of ``import torch``. It only replaces a few methods of
c10d's pybind classes (``hangdoc_probe_hooks``). The first store or process group of a rank then starts the
answering thread (``hangdoc_probe_serve``): agents, DataLoader workers and compiler workers import torch too
and are no ranks.
"""

from __future__ import annotations

import atexit
import os
import sys
from _thread import allocate_lock
from collections import deque

FOLDER_VARIABLE = "HANGDOC_PROBE"
SETTINGS_FILE = "record.json"  # in that folder, where the watch was told what to record; LARGEST_SETTINGS bytes
LARGEST_SETTINGS = 1024
MOST_ENTRIES = 5000  # of a folder of sys.path; judgement
NO_RANK_VARIABLE = "HANGDOC_NO_RANK"  # pid of a process that is no rank, whatever it makes: it runs others' tests
USUAL = ("collectives", "messages", "store", "lines", "branches")  # what is recorded, unless the watch was told
RING = 1000  # point-to-point and rooted calls that are kept; a header's ``forgotten`` counts the older ones
MOST_GROUPS = 4096  # judgement, as the next: bounds of what the probe may cost a rank
DEEPEST_STACK = 256
LONGEST_ANSWER_S = 2.0  # an exit waits this long for an answer under way; the slowest measured one took 1 s

AGENT_FOLDERS = tuple(f"/torch/distributed/elastic/{name}/" for name in ("agent", "rendezvous", "utils"))
RANK_FILES = ("/torch/distributed/rendezvous.py", "/torch/distributed/distributed_c10d.py")


class State:
    """All that the probe knows about this process, in plain containers: the GIL makes each step atomic."""

    def __init__(self, folder, settings=None):
        settings = settings or {}
        self.folder = folder
        self.settings = settings
        entries = count(settings.get("entries")) or RING
        self.pid = 0  # the process that answers; 0: none yet
        self.starting = allocate_lock()
        self.rank = None
        self.world_size = None
        self.ring = deque(maxlen=entries)
        self.point_to_points = 0
        self.store_calls = 0
        self.store_waits = {}
        self.groups = {}  # name -> (global ranks in group order, description, backend, packed stack)
        self.backends = {}  # as asked for -> the names of the backends; None: this torch has one recorder for all
        self.first_store = None
        self.listener = None
        self.clients = {}
        self.allow = None  # call it to let the watcher look into this process
        self.said_bye = False
        self.answering = allocate_lock()
        self.phases = None  # hangdoc_probe_phases.Phases, where the watch asks for them
        self.lines = None  # hangdoc_probe_lines.Lines, unless the watch does without
        self.branches = None  # hangdoc_probe_branches.Branches, unless the watch does without
        self.faults = None  # hangdoc_probe_faults.Faults


STATE = None


def _autoload():
    """The entry point. Whatever goes wrong here must never break the user's ``import torch``."""
    global STATE  # noqa: PLW0603 - one process, one state
    try:
        folder = os.environ.get(FOLDER_VARIABLE)
        if STATE is None and folder and _is_ours(folder):
            import hangdoc_probe_hooks

            STATE = State(folder, _settings(folder))
            if os.environ.get(NO_RANK_VARIABLE) == str(os.getpid()):
                STATE.pid = os.getpid()  # as if it answered already; a process that it forks is another one
            _turn_recorder_on(STATE.settings)
            hangdoc_probe_hooks.patch(STATE)
            _count_lines(STATE)
            atexit.register(_fall_silent)
    except Exception:  # the job goes on without us
        STATE = None


def _fall_silent():
    """Registered early, so called late among the exit hooks. From here on our thread calls nothing of torch.

    Once Python begins to end, a thread that returns from C++ and takes the GIL is ended by force, and C++ then aborts
    the whole process. The lock is kept: a question that comes now waits for ever.
    """
    state = STATE
    if state is not None and state.pid == os.getpid():
        state.answering.acquire(timeout=LONGEST_ANSWER_S)


def _is_ours(folder):
    import stat

    found = os.lstat(folder)
    return stat.S_ISDIR(found.st_mode) and found.st_uid == os.geteuid() and not found.st_mode & 0o077


def _settings(folder):
    """What the watch was told to record, {} for the usual: {"record": ["collectives", …], "entries": 5000}."""
    path = os.path.join(folder, SETTINGS_FILE)
    if not os.path.exists(path):
        return {}
    import json

    with open(path, "rb") as file:
        found = json.loads(file.read(LARGEST_SETTINGS))
    return found if type(found) is dict else {}


def records(settings, what):
    """True if ``what`` is to be recorded. Phases are only where they are named."""
    return what in settings.get("record", USUAL)


def library_roots():
    """Folders whose files are not the user's: standard library, installed packages, torch, the probe."""
    roots = {os.path.dirname(os.__file__), os.path.dirname(os.path.abspath(__file__))}
    roots.add(os.path.dirname(sys.modules["torch"].__file__))
    own = sys.path[:1]  # the program's folder, whatever else lies in it
    roots.update(path for path in list(sys.path) if type(path) is str and _has_packages(path, path in own))
    return sorted(roots)


def _has_packages(folder, own, known={}):  # noqa: B006 - looked at once: later the folder may be beyond reach
    """True if packages were installed into that folder of ``sys.path``: also with `pip install --target`.

    ``own``: it is the program's, as then also where other folders come before it later."""
    if folder.rstrip("/").endswith(("site-packages", "dist-packages")):
        return True
    if folder not in known:
        known[folder] = not own and folder[:1] == "/" and _has_metadata(folder)
    return known[folder]


def _has_metadata(folder):
    """True if it has a *.dist-info; False of the working directory, and where nobody can look."""
    try:
        if folder.rstrip("/") == os.getcwd():
            return False
        with os.scandir(folder) as entries:
            few = (entry.name for entry, _ in zip(entries, range(MOST_ENTRIES)))  # noqa: B905
            return any(name.endswith(".dist-info") for name in few)
    except OSError:
        return False


def _count_lines(state):
    """Have the interpreter count which lines run, in what there is of the program; ``started`` adds what came since."""
    if records(state.settings, "lines"):
        import hangdoc_probe_lines

        state.lines = hangdoc_probe_lines.Lines(library_roots())
        state.lines.more(sys._getframe())


def _record_branches(state):
    """Record how the branches of the program come out, where this Python tells."""
    if not records(state.settings, "branches") or sys.implementation.name != "cpython" or sys.version_info < (3, 12):
        return
    import hangdoc_probe_branches
    import hangdoc_probe_hooks
    import hangdoc_probe_outcomes  # noqa: F401  # now: what an answer reads between two looks is taken for the rank's work

    state.branches = hangdoc_probe_branches.Branches(library_roots())
    state.branches.start(hangdoc_probe_hooks.hide_from_compiler)


def _turn_recorder_on(settings):
    """Turn the flight recorder on, off by default before torch 2.11. From 2.8 on the variable's older name warns."""
    import torch

    version = tuple(int(part) for part in torch.__version__.split(".")[:2])
    variable = "TORCH_NCCL_TRACE_BUFFER_SIZE" if version < (2, 8) else "TORCH_FR_BUFFER_SIZE"
    entries = count(settings.get("entries"))
    if not records(settings, "collectives"):
        os.environ.setdefault(variable, "0")
    elif entries:
        os.environ.setdefault(variable, str(entries))
    elif version < (2, 11):
        os.environ.setdefault(variable, "2000")


# Stacks


def pack_stack(frame):
    """(code, instruction, code, instruction, …), innermost first: cheap; lines are worked out later."""
    packed = []
    while frame is not None and len(packed) < 2 * DEEPEST_STACK:
        packed.append(frame.f_code)
        packed.append(frame.f_lasti)
        frame = frame.f_back
    return tuple(packed)


# Is this process a rank?


def started(frame):
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
            if state.lines is not None:
                state.lines.more(frame)
            import hangdoc_probe_serve

            hangdoc_probe_serve.start(state)
            _record_branches(state)
    except Exception:  # the job goes on without us
        state.pid = os.getpid()
    finally:
        state.starting.release()


def _identity(frame):
    """(rank, world size), each None where it is not known; None for an agent of torchrun, which is no rank.

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
            rank = count(values.get("rank")) if rank is None else rank
            world_size = count(values.get("world_size")) if world_size is None else world_size
        frame = frame.f_back
    if rank is None:
        rank = count(os.environ.get("RANK"))
    if world_size is None:
        world_size = count(os.environ.get("WORLD_SIZE"))
    return rank, world_size


def count(value):
    """A whole number from 0 to 2^31 out of an int or its text, else None."""
    try:
        number = int(value) if type(value) in (int, str) else -1
    except ValueError:
        return None
    return number if 0 <= number < 1 << 31 else None
