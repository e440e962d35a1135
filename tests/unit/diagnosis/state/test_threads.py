"""Where a wait ends, from made-up looks at the threads of several ranks."""

from __future__ import annotations

import pytest

from hangdoc.diagnosis.source.sources import Sources
from hangdoc.diagnosis.state.process import blocking_thread
from hangdoc.diagnosis.state.threads import Chain, End, Threads
from hangdoc.model.process import Frame, OpenFile, Process, ProcessState, Thread
from hangdoc.model.snapshot import RankSnapshot, SourceText

FILE, LIBRARY = "/job/serve.py", "/usr/lib/python3.11"
TORCH = "/venv/lib/python3.11/site-packages/torch"
PRIVATE = "202 0x1 0x189 0x0 0x0 0x0 0xffffffff"
ASK = "def ask(link):\n    link.sendall(b'n')\n    return link.recv(1)\n"
SERVE = "def serve(link, box):\n    while link.recv(1):\n        with LOCK:\n            link.sendall(box.get())\n"
TRAIN = "def train(box):\n    box.put(1)\n    with LOCK:\n        reduce(1)\n    box.put(2)\n"
HANDLE = "def handle(key):\n    with LOCK:\n        return rpc.rpc_sync(key, touch)\n"
TOUCH = "def touch():\n    with LOCK:\n        return 1\n"
SOURCES = Sources(
    tuple(
        SourceText(FILE, name, first, text)
        for name, first, text in (
            ("ask", 1, ASK),
            ("serve", 11, SERVE),
            ("train", 21, TRAIN),
            ("handle", 31, HANDLE),
            ("touch", 41, TOUCH),
        )
    )
)
GET = (Frame(f"{LIBRARY}/threading.py", 327, "Condition.wait"), Frame(f"{LIBRARY}/queue.py", 171, "Queue.get"))
REDUCE = Frame(f"{TORCH}/distributed/distributed_c10d.py", 9, "all_reduce")
RPC = Frame(f"{TORCH}/distributed/rpc/api.py", 842, "rpc_sync")
RUN = Frame(f"{TORCH}/distributed/rpc/internal.py", 209, "_run_function")
HERE, THERE = "tcp 127.0.0.1:5 to 127.0.0.1:6 (ESTABLISHED)", "tcp 127.0.0.1:6 to 127.0.0.1:5 (ESTABLISHED)"


def at(line: int, function: str) -> Frame:
    return Frame(FILE, line, function)


def thread(tid: int, *frames: Frame, name: str = "MainThread", files: tuple[OpenFile, ...] = ()) -> Thread:
    futex = not files
    return Thread(tid, name, "S", "futex_do_wait" if futex else "sk_wait_data", PRIVATE if futex else None,
                  frames=frames, blocking_files=files)  # fmt: skip


def rank(number: int, *threads: Thread, files: tuple[OpenFile, ...] = ()) -> RankSnapshot:
    """A rank whose process has the id of its first thread, which blocks on ``files``."""
    looks = tuple(ProcessState(moment, "S", threads=threads) for moment in (0.0, 1.0))
    process = Process(threads[0].tid, 1, "rank", looks=looks, blocking_files=files)
    return RankSnapshot(number, "node", "probe", 2, process=process)


def reads(target: str, *peers: int) -> tuple[OpenFile, ...]:
    return (OpenFile(3, f"socket:{target}", peers, "recvfrom"),)


def chain(*ranks: RankSnapshot, of: int = 1) -> Chain | None:
    return Threads({each.rank: each for each in ranks}, SOURCES).chain(of)


def way(found: Chain | None) -> list[tuple[int, str]]:
    return [(hop.node.rank, hop.node.thread.name) for hop in found.hops] if found is not None else []


ASKING = rank(1, thread(20, at(3, "ask")), files=reads(HERE, 10))
IN_CALL = thread(10, REDUCE, at(24, "train"))


def test_the_thread_that_serves_a_socket_holds_up_who_reads_from_it() -> None:
    found = chain(rank(0, thread(10, REDUCE, at(2, "ask")), thread(11, *GET, at(14, "serve"), name="server")), ASKING)
    assert way(found) == [(1, "MainThread"), (0, "server")]
    assert found is not None
    assert (found.end, found.needs(1), found.through_a_servant) == (End.OUTSIDE, (0,), True)


def test_a_thread_that_is_to_fill_the_queue_is_followed() -> None:
    served = rank(0, IN_CALL, thread(11, *GET, at(14, "serve"), name="server"))
    found = chain(served, ASKING)
    # At line 24, train() will yet put something.
    assert way(found) == [(1, "MainThread"), (0, "server"), (0, "MainThread")]
    assert found is not None
    assert found.end is End.CALL


def test_a_lock_that_the_main_thread_holds_in_a_call() -> None:
    found = chain(rank(0, IN_CALL, thread(11, at(13, "serve"), name="server")), ASKING)
    assert way(found) == [(1, "MainThread"), (0, "server"), (0, "MainThread")]
    assert found is not None
    assert found.hops[1].lock is not None
    assert (found.hops[1].lock.name, found.end) == ("LOCK", End.CALL)


def test_a_server_that_waits_for_the_next_request_is_not_waited_for() -> None:
    idle = thread(11, at(12, "serve"), name="server", files=reads(THERE, 20))
    busy = thread(12, *GET, at(14, "serve"), name="another")
    found = chain(rank(0, IN_CALL, idle, busy), ASKING)
    assert way(found) == [(1, "MainThread"), (0, "server")]
    assert found is not None
    assert (found.end, found.needs(1)) == (End.REQUEST, ())


@pytest.mark.parametrize("family", ["unix 77 to 78", "tcp 127.0.0.1:5 to 127.0.0.1:6 (ESTABLISHED)"])
def test_every_kind_of_socket(family: str) -> None:
    asking = rank(1, thread(20, at(3, "ask")), files=reads(family, 10))
    assert way(chain(rank(0, IN_CALL, thread(11, at(13, "serve"), name="server")), asking))[1] == (0, "server")


def test_of_two_threads_that_may_serve_it_none_is_named() -> None:
    both = [thread(tid, *GET, at(14, "serve"), name=f"server-{tid}") for tid in (11, 12)]
    assert chain(rank(0, IN_CALL, *both), ASKING) is None


def test_another_socket_of_the_same_server_is_not_this_one() -> None:
    other = thread(11, at(12, "serve"), name="server", files=reads(THERE.replace(":5 ", ":55 "), 20))
    assert chain(rank(0, IN_CALL, other), ASKING) is None


def test_a_socket_of_nobody_in_the_job() -> None:
    assert chain(rank(0, IN_CALL), rank(1, thread(20, at(3, "ask")), files=reads(HERE, 4711))) is None


def test_handlers_that_hold_a_lock_over_a_call_back() -> None:
    handler = thread(11, at(42, "touch"), RUN, name="pt_thread_pool")
    calls = thread(10, RPC, at(33, "handle"))
    asked = rank(
        1, thread(20, REDUCE, at(24, "elsewhere")), thread(21, RPC, at(3, "touch"), RUN, name="pt_thread_pool")
    )
    found = chain(rank(0, calls, handler), asked, of=0)
    # Rank 0 holds LOCK and calls touch() on rank 1, which calls back.
    assert way(found)[:2] == [(0, "MainThread"), (1, "pt_thread_pool")]
    assert way(found)[2:] == [(0, "pt_thread_pool")]
    assert found is not None
    assert found.end is End.CIRCLE
    assert {found.after(hop).rank for hop in found.circle if hop.lock is not None} == {0}


def test_a_thread_of_autograds_acts_for_the_one_in_backward() -> None:
    backward = Frame(f"{TORCH}/autograd/graph.py", 800, "_engine_run_backward")
    hook = thread(12, REDUCE, at(50, "hook"), name="pt_autograd_0")
    process = rank(0, thread(10, backward, at(60, "step")), thread(11, name="pt_autograd_1"), hook).process
    assert process is not None
    assert blocking_thread(process) == hook
    alone = rank(0, thread(10, backward, at(60, "step")), thread(11, name="pt_autograd_1")).process
    assert alone is not None
    assert alone.last is not None
    assert blocking_thread(alone) == alone.last.main
