"""The gates of an injection, on looks made by hand."""

from __future__ import annotations

from dataclasses import replace

import pytest
from waiting_rank import EVENTS, MUTEX, STACK, state, thread, why, worker

from hangdoc.capture.inject import safety
from hangdoc.capture.read import native_stacks
from hangdoc.model.process import Frame, ProcessState


def test_a_rank_that_waits() -> None:
    assert why(state(), state()) == ""


@pytest.mark.parametrize(
    ("odd", "words"),
    [
        (state(worker(10, state="T")), "thread 10 (pt_gloo_runloop) is stopped"),
        (state(thread(), worker(state="D")), "thread 11 (pt_gloo_runloop) is in state D"),
        (state(thread(), worker(state="t")), "is stopped"),
        (state(tracer=4711), "process 4711 traces it"),
        (state(thread(owns_gil=True)), "holds Python's global lock"),
        (state(thread(), replace(worker(), owns_gil=True)), "holds Python's global lock"),
        (state(thread(frames=())), "Python stack cannot be seen"),
        (state(thread(state="R", syscall="running")), "it does not wait"),
        (state(thread(syscall="running")), "it does not wait"),
        (state(thread(syscall=None)), "it does not wait"),
        (state(thread(syscall="-1")), "it does not wait"),
        (state(thread(frames=(Frame("/job/train.py", 8, "step"), STACK[1]))), "moved between the two looks"),
        (state(thread(frames=STACK[1:])), "moved between the two looks"),
        (ProcessState(at=0.0, state="Z"), "gone"),
    ],
)
def test_any_look_shuts_the_gate(odd: ProcessState, words: str) -> None:
    assert words in why(state(), odd)
    assert words in why(odd, state())


def test_one_look_is_not_enough() -> None:
    assert "two looks" in why(state())


def test_who_lends_its_thread() -> None:
    python = replace(worker(12), python_id=7)
    assert safety.lender(state(thread(), python, worker(13, "other"), worker(14))) == 14
    assert safety.lender(state(thread(), python, worker(13, "gloo_tcp_loop", EVENTS))) == 13
    assert safety.lender(state(thread(), worker(syscall=MUTEX))) is None
    assert safety.lender(state(thread(), worker(syscall="running"))) is None
    assert safety.lender(state(thread(), worker(syscall=None))) is None
    assert safety.lender(state(thread(), worker(state="R"))) is None
    assert safety.lender(state(thread(), python)) is None


def test_versions_of_python() -> None:
    assert safety.python_version(3, 9) is None
    assert safety.python_version(3, 13) is None
    newer = safety.python_version(3, 14)
    assert newer is not None
    assert "sys.remote_exec" in newer.remedy
    assert "main thread" in newer.remedy
    older, free = safety.python_version(3, 8), safety.python_version(3, 13, free_threaded=True)
    assert older is not None
    assert free is not None
    assert "without a GIL" in free.why


def test_whose_native_frames_are_worth_it() -> None:
    library = "/v/lib/python3.11/site-packages/torch/autograd/graph.py"
    backward = thread(frames=(Frame(library, 979, "_engine_run_backward"), *STACK))
    sleeping = thread(syscall="230 0x1 0x1 0x7f 0x0 0x0 0x0")
    operator = thread(frames=(Frame(library.replace("autograd/graph", "_ops"), 882, "OpOverload.redispatch"), *STACK))
    named = thread(frames=(Frame(library, 5, "all_reduce"), *STACK))
    looks = {
        1: (state(backward), state(backward)),
        2: (state(backward), state(backward)),  # of the same kind
        3: (state(), state()),
        4: (state(sleeping), state(sleeping)),
        5: (state(named), state(named)),
        6: (state(), state(thread(frames=STACK[1:]))),
        7: (state(thread(), worker(state="D")),) * 2,
        8: (state(),),
        9: (state(operator), state(operator)),
    }
    assert native_stacks.worth_it(looks) == {1: 10, 3: 10, 9: 10}


def test_the_thread_that_an_event_loop_waits_for() -> None:
    select = Frame("/usr/lib/python3.11/selectors.py", 468, "EpollSelector.select")
    loop = thread(frames=(select, *STACK), syscall="232 0xc 0x7f 0x1 0xffffffff 0x0 0x0")
    asks = replace(worker(12), frames=STACK, syscall="7 0x7f 0x1 0x36ee80 0x0 0x0 0x0")
    assert native_stacks.worth_it({5: (state(loop, asks), state(loop, asks))}) == {5: 12}
    both = state(loop, asks, replace(asks, tid=13))
    assert native_stacks.worth_it({5: (both, both)}) == {}


PYSTACK = """\
Traceback for thread 10 (python) [] (most recent call last):
    (C) File "???", line 0, in _start (/usr/bin/python3.11)
    (Python) File "/job/train.py", line 20, in <module>
        step()
    (C) File "Objects/call.c", line 5, in slot (/usr/lib/libpython3.11.so.1.0)
    (Python) File "/job/train.py", line 7, in step
        loss.backward()
    (C) File "???", line 0, in c10d::Reducer::finalize_backward() (/v/torch/lib/libtorch_cpu.so)
    (C) File "./nptl/futex.c", line 87, in wait \x1b[31m(inlined) (/usr/lib/libc.so.6)

Traceback for thread 11 (pt_gloo_runloop) [] (most recent call last):
    (C) File "???", line 0, in other (/usr/lib/libc.so.6)
"""


def test_pystacks_answer() -> None:
    assert native_stacks.parse(PYSTACK, 10) == (
        Frame("/usr/lib/libc.so.6", 87, "wait \\x1b[31m(inlined)"),
        Frame("/v/torch/lib/libtorch_cpu.so", 0, "c10d::Reducer::finalize_backward()"),
    )
    assert native_stacks.parse(PYSTACK, 12) == ()
    assert native_stacks.parse("rubbish\n" * 3, 10) == ()
