"""What a rank does, from two looks at its process and its journal."""

from __future__ import annotations

from dataclasses import replace

import pytest

from hangdoc.diagnosis.calls.history import programs
from hangdoc.diagnosis.state.activity import describe
from hangdoc.model.diagnosis import Activity
from hangdoc.model.journal import Call, Journal, PointToPoint, ProcessGroup, StoreWait
from hangdoc.model.process import Frame, Local, OpenFile, Process, ProcessExit, ProcessState, Stack, Thread
from hangdoc.model.snapshot import JobSnapshot, RankSnapshot

LIBRARY = "/usr/lib/python3.11/"
TORCH = "/venv/lib/python3.11/site-packages/torch/"
C10D = TORCH + "distributed/distributed_c10d.py"
USER = Frame("/home/me/train.py", 30, "train")
MAIN = Frame("/home/me/train.py", 50, "<module>")


def inside(*library: Frame) -> Stack:
    """A stack of those library frames below user code."""
    return (*library, USER, MAIN)


def process(
    stack: Stack = (USER, MAIN), *, state: str = "S", wchan: str | None = None, cpu: float = 0.0, **extra: object
) -> Process:
    """A process that did the same in both looks; ``cpu``: seconds of CPU time between them."""
    looks = tuple(
        ProcessState(
            100.0 + i,
            state,
            cpu=5.0 + cpu * i,
            threads=(Thread(71, "MainThread", state, wchan, cpu=5.0 + cpu * i, frames=stack),),
        )
        for i in range(2)
    )
    return Process(71, 1, "rank", looks=looks, **extra)  # type: ignore[arg-type]


def activity(it: Process | None, journal: Journal | None = None, end: ProcessExit | None = None) -> Activity:
    rank = RankSnapshot(0, "node", "probe", process=it, journal=journal, exit=end)
    return describe(rank, programs(JobSnapshot(taken=101.0, mode="watch", ranks=(rank,))).get(0))


def journal_of(
    *calls: Call, stacks: tuple[Stack, ...] = (inside(Frame(C10D, 9, "barrier")),), **extra: object
) -> Journal:
    group = ProcessGroup("0", (0, 1), "default_pg", "cpu:gloo")
    return Journal("probe", (group,), calls, stacks=stacks, **extra)  # type: ignore[arg-type]


def barrier(number: int, *, completed: bool = False, stack: int = 0) -> Call:
    return Call("0", number, number, "barrier", stack, completed=completed, created_ns=number)


# --- gone and held -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("end", "text"),
    [
        (ProcessExit(1.0, status=0), "exited with status 0"),
        (ProcessExit(1.0, status=1, exception="ValueError"), "ended with ValueError"),
        (ProcessExit(1.0, signal=9), "killed by signal 9"),
        (ProcessExit(1.0, signal=9, exception="ValueError", oom_kills=2), "killed by signal 9"),
        (ProcessExit(1.0, signal=15, exception="ValueError", oom_kills=2), "ended with ValueError"),
        (ProcessExit(1.0), "ended, status unknown"),
    ],
)
def test_exited(end, text):
    found = activity(process(), end=end)
    assert (found.kind, found.text) == ("exited", text)


def test_absent():
    assert activity(None).kind == "absent"


@pytest.mark.parametrize(("state", "kind"), [("Z", "zombie"), ("X", "zombie"), ("T", "stopped"), ("t", "stopped")])
def test_states_of_the_process_table(state, kind):
    assert activity(process(state=state)).kind == kind


def test_held_by_a_debugger():
    it = process(state="t")
    it = replace(it, looks=tuple(replace(look, tracer_pid=99) for look in it.looks))
    found = activity(it)
    assert (found.kind, found.text) == ("stopped", "held by a debugger (process 99)")


def test_uninterruptible_only_if_it_stays_so():
    assert activity(process(state="D", wchan="rpc_wait_bit_killable")).kind == "uninterruptible"
    busy = process(state="D")
    busy = replace(busy, looks=(replace(busy.looks[0], state="R"), busy.looks[1]))
    assert activity(busy).kind != "uninterruptible"


def test_a_stopped_rank_is_stopped_whatever_it_waits_in():
    it = process(inside(Frame(C10D, 9, "barrier")), state="T")
    assert activity(it, journal_of(barrier(1))).kind == "stopped"


# --- communicating -------------------------------------------------------------------------------------------------


def test_in_a_collective():
    found = activity(process(inside(Frame(C10D, 9, "barrier"))), journal_of(barrier(1, completed=True), barrier(2)))
    assert (found.kind, found.op, found.group, found.sequence) == ("in-collective", "barrier", "0", 2)
    assert found.members == (0, 1)
    assert found.where == USER
    assert found.text == "barrier  default_pg #2"


def test_the_pending_call_is_the_one_of_the_line_it_stands_at():
    """Issued with async_op=True and not waited for yet: the thread waits in a later one."""
    other = (Frame(C10D, 9, "barrier"), Frame(USER.file, 12, "begin"), MAIN)
    journal = journal_of(barrier(1, stack=1), barrier(2), stacks=(inside(Frame(C10D, 9, "barrier")), other))
    assert activity(process(inside(Frame(C10D, 9, "barrier"))), journal).sequence == 2


def test_without_a_journal_the_stack_tells():
    found = activity(process(inside(Frame(C10D, 9, "all_gather"), Frame(C10D, 5, "all_gather_object"))))
    assert (found.kind, found.text, found.sequence) == ("in-collective", "all_gather_object", None)


def test_send_and_recv():
    frames = inside(Frame(C10D, 9, "recv"))
    point = PointToPoint("0", 3, "recv", 1, 0, 0, completed=False)
    found = activity(process(frames), journal_of(stacks=(frames,), point_to_points=(point,)))
    assert (found.kind, found.peer, found.text) == ("recv", 1, "recv from rank 1")
    seen = inside(Frame(C10D, 9, "send", (Local("dst", "3"),)))
    assert activity(process(seen)).peer == 3


def test_waiting_on_the_store():
    frames = inside(
        Frame(TORCH + "distributed/rendezvous.py", 9, "_create_c10d_store"), Frame(C10D, 3, "init_process_group")
    )
    assert activity(process(frames)).kind == "store-wait"


@pytest.mark.parametrize(
    ("operation", "keys", "text"),
    [
        ("get", ("server/1",), "store.get(server/1)"),
        ("wait", tuple(f"done{i}" for i in range(4)), "store.wait(done0, done1, done2, …)"),
        ("connect", ("127.0.0.1", "29500"), "TCPStore(127.0.0.1, 29500)"),
        ("group", ("2",), "the set-up of process group 2"),
    ],
)
def test_a_wait_on_the_store_that_only_the_journal_shows(operation, keys, text):
    wait = StoreWait(operation, keys, 0)
    found = activity(process(), journal_of(stacks=((USER, MAIN),), store_waits=(wait,)))
    assert (found.kind, found.text) == ("store-wait", text)


def test_a_thread_that_communicates_for_the_main_thread():
    main = Thread(71, "MainThread", "S", frames=inside(Frame(LIBRARY + "threading.py", 9, "join")))
    helper = Thread(72, "saver", "S", frames=(Frame(C10D, 9, "barrier"), Frame(USER.file, 77, "save")))
    it = Process(71, 1, "rank", looks=tuple(ProcessState(100.0 + i, "S", threads=(main, helper)) for i in range(2)))
    found = activity(it)
    assert found.kind == "in-collective"
    assert found.where == Frame(USER.file, 77, "save")


# --- at rest outside ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("frame", "kind"),
    [
        (Frame(LIBRARY + "pdb.py", 9, "Pdb.interaction"), "debugger"),
        (Frame(LIBRARY + "getpass.py", 9, "unix_getpass"), "terminal"),
        (Frame(LIBRARY + "subprocess.py", 9, "Popen.wait"), "waiting-for-child"),
        (Frame(LIBRARY + "threading.py", 9, "Lock.acquire"), "lock"),
        (Frame(LIBRARY + "queue.py", 9, "Queue.get"), "lock"),
        (Frame(LIBRARY + "threading.py", 9, "_shutdown"), "shutting-down"),
        (
            Frame(TORCH + "utils/data/dataloader.py", 9, "_MultiProcessingDataLoaderIter._try_get_data"),
            "waiting-for-worker",
        ),
        (Frame(TORCH + "_inductor/codecache.py", 9, "load"), "compiling"),
        (Frame("/venv/lib/python3.11/site-packages/filelock/_api.py", 9, "BaseFileLock.acquire"), "file-lock"),
    ],
)
def test_library_frames_tell(frame, kind):
    assert activity(process(inside(frame))).kind == kind


def test_a_user_function_of_a_telling_name_tells_nothing():
    assert activity(process((Frame("/home/me/queue.py", 9, "get"), MAIN), wchan="hrtimer_nanosleep")).kind == "sleeping"


@pytest.mark.parametrize(
    ("wchan", "kind"),
    [
        ("hrtimer_nanosleep", "sleeping"),
        ("do_nanosleep", "sleeping"),
        ("anon_pipe_read", "pipe"),
        ("pipe_write", "pipe"),
        ("wait_for_partner", "pipe"),
        ("flock_lock_inode_wait", "file-lock"),
        ("futex_do_wait", "lock"),
        (None, "lock"),
    ],
)
def test_kernel_wait_channels_tell(wchan, kind):
    assert activity(process(wchan=wchan)).kind == kind


@pytest.mark.parametrize(
    ("file", "kind"),
    [
        (OpenFile(0, "/dev/null", operation="read"), "terminal"),
        (OpenFile(5, "/dev/pts/3", operation="read"), "terminal"),
        (OpenFile(5, "pipe:[77]", operation="read"), "pipe"),
        (OpenFile(5, "/data/lock", operation="flock"), "file-lock"),
        (OpenFile(-1, "process 4711", (4711,), "wait4"), "waiting-for-child"),
        (OpenFile(5, "/data/part-3", operation="read"), "io"),
    ],
)
def test_what_a_system_call_works_on_tells(file, kind):
    assert activity(process(blocking_files=(file,))).kind == kind


def test_computing_is_moving():
    found = activity(process(state="R", cpu=0.9))
    assert (found.kind, found.moving) == ("computing", True)
    assert not activity(process()).moving


def test_one_that_gets_little_of_a_busy_machine_moves():
    assert activity(process(state="R", cpu=0.02)).moving
    assert not activity(process(state="S", cpu=0.02)).moving


def test_bytes_and_frames_move_too():
    it = process()
    reads = replace(it, looks=(replace(it.looks[0], read_bytes=0), replace(it.looks[1], read_bytes=1 << 20)))
    assert activity(reads).moving
    other = process((Frame(USER.file, 40, "evaluate"), MAIN))
    assert activity(replace(it, looks=(it.looks[0], other.looks[1]))).moving


def test_one_look_proves_no_movement():
    it = process(state="R", cpu=0.9)
    assert not activity(replace(it, looks=it.looks[1:])).moving


def test_the_gil_held_in_native_code():
    main = Thread(71, "MainThread", "S", "futex_do_wait", active=False, owns_gil=True, frames=(USER, MAIN))
    looks = tuple(ProcessState(100.0 + i, "S", threads=(main,)) for i in range(2))
    assert activity(Process(71, 1, "rank", looks=looks)).kind == "gil-held"
    running = replace(main, active=True)
    once = (replace(looks[0], threads=(running,)), looks[1])
    assert activity(Process(71, 1, "rank", looks=once)).kind != "gil-held"


def test_a_stack_that_nobody_could_read():
    found = activity(process(()))
    assert (found.kind, found.where) == ("not-visible", None)


def test_a_pending_call_beats_a_nameless_wait():
    assert activity(process(wchan="futex_do_wait"), journal_of(barrier(4))).sequence == 4
    assert activity(process(wchan="hrtimer_nanosleep"), journal_of(barrier(4))).kind == "sleeping"


# --- children at work -----------------------------------------------------------------------------------------------

FUTURE = Frame(LIBRARY + "concurrent/futures/_base.py", 451, "Future.result")
QUEUE = Frame(LIBRARY + "multiprocessing/queues.py", 103, "Queue.get")
LOCK = Frame(LIBRARY + "threading.py", 320, "Condition.wait")


@pytest.mark.parametrize(
    ("stack", "role", "moves"),
    [
        (inside(LOCK, FUTURE), "child", True),
        (inside(QUEUE), "child", True),
        (inside(QUEUE), "dataloader-worker", False),  # it may prefetch what nobody waits for
        (inside(LOCK), "child", False),  # what another thread of the rank is to do
        (inside(Frame(C10D, 9, "barrier")), "child", False),
    ],
)
def test_a_rank_whose_children_compute_is_working(stack: Stack, role: str, moves: bool) -> None:
    busy = replace(process((USER,), state="R", cpu=0.9), role=role)
    assert activity(process(stack, wchan="futex_do_wait", children=(busy,))).moving is moves
    assert not activity(process(stack, wchan="futex_do_wait", children=(replace(busy, looks=busy.looks[:1]),))).moving


def test_a_child_may_work_for_a_thread_that_the_rank_waits_for() -> None:
    busy = replace(process((USER,), state="R", cpu=0.9), role="child")
    rank = process(inside(LOCK), wchan="futex_do_wait", children=(busy,))
    helper = Thread(72, "compress", "S", frames=inside(Frame(LIBRARY + "subprocess.py", 1262, "Popen.wait")))
    looks = tuple(replace(look, threads=(*look.threads, helper)) for look in rank.looks)
    assert not activity(rank).moving
    assert activity(replace(rank, looks=looks)).moving


@pytest.mark.parametrize(
    ("states", "ran", "frames", "moves"),
    [
        ("RR", 0.4, (USER,), True),
        ("RR", 0.01, (USER,), False),
        ("SR", 0.4, (USER,), False),  # a monitor that was seen at work by chance
        ("RR", 0.4, (Frame("/x/hangdoc/probe/hangdoc_probe_serve.py", 9, "_serve"),), False),
        ("SS", 0.6, (), True),
    ],
)
def test_a_thread_that_computes_on_a_busy_machine_moves(states: str, ran: float, frames: Stack, moves: bool) -> None:
    rank = process(inside(Frame(C10D, 9, "all_reduce")))
    looks = tuple(
        replace(look, threads=(*look.threads, Thread(72, "loader", state, cpu=ran * at, frames=frames)))
        for at, (look, state) in enumerate(zip(rank.looks, states, strict=True))
    )
    assert activity(replace(rank, looks=looks)).moving is moves
