"""What a rank waits for, from its C++ frames (as pystack 1.7 prints them)."""

from __future__ import annotations

import pytest

from hangdoc.diagnosis.frames.native_frames import native_function, native_wait
from hangdoc.diagnosis.state.process import at_rest
from hangdoc.model.process import Frame, Process, ProcessState, Stack, Thread

WAIT = (
    "__futex_abstimed_wait_common",
    "pthread_cond_wait@@GLIBC_2.3.2",
    "std::condition_variable::wait(std::unique_lock<std::mutex>&)",
)
BACKWARD = (*WAIT, "c10d::Reducer::finalize_backward()", "torch::autograd::Engine::thread_main(…)")
STORE = (
    "__poll",
    "c10d::detail::SocketImpl::waitForInput(…)",
    "c10d::TCPStore::doWait(…)",
    "c10d::TCPStore::doGet(…)",
    "c10d::TCPStore::get(…)",
)
WORK = (*WAIT, "c10d::ProcessGroupGloo::AsyncWork::wait(…)", "pybind11::cpp_function::dispatcher(…)")
LOCK = (
    "__futex_abstimed_wait_common",
    "__new_sem_wait_slow64.constprop.0",
    "PyThread_acquire_lock_timed",
    "acquire_timed",
)


def stack(*functions: str) -> Stack:
    return tuple(Frame("/lib/library.so", 0, function) for function in functions)


@pytest.mark.parametrize(
    ("functions", "kind", "words"),
    [
        (BACKWARD, "in-collective", "synchronizes gradients"),
        (STORE, "store-wait", "store.get()"),
        (WORK, "in-collective", "asynchronous collective"),
        ((*WAIT, "c10d::ProcessGroupGloo::RecvWork::wait(…)"), "recv", "recv"),
        ((*WAIT, "c10d::ProcessGroupGloo::SendWork::wait(…)"), "send", "send"),
        (LOCK, "lock", "a Python lock"),
        (("__lll_lock_wait", "pthread_mutex_lock", "my_library_enter"), "lock", "a native lock"),
        ((*WAIT, "my_library_pop"), "lock", "another native thread"),
    ],
)
def test_a_wait_and_its_words(functions: tuple[str, ...], kind: str, words: str) -> None:
    found = native_wait(stack(*functions))
    assert found is not None
    assert found[0] == kind
    assert words in found[1]
    at = at_rest(*blocked(stack(*functions)))
    assert (at.kind, at.text) == found


def test_frames_that_say_nothing() -> None:
    assert native_wait(stack("my_library_pause")) is None
    assert native_wait(()) is None
    at = at_rest(*blocked(()))
    assert (at.kind, at.text) == ("lock", "blocked in a native call (a lock, a socket or a library)")


def test_the_function_that_holds_the_lock() -> None:
    process, thread, frames = blocked(
        stack("clock_nanosleep@GLIBC_2.2.5", "my_library_pause(int)", "cfunction_call"), owns_gil=True
    )
    assert native_function(thread.native_frames) == "my_library_pause"
    at = at_rest(process, thread, frames)
    assert at.kind == "gil-held"
    assert "(my_library_pause())" in at.text


def blocked(native: Stack, owns_gil: bool = False) -> tuple[Process, Thread, Stack]:
    """A rank whose own code is inside a C function, at both looks."""
    frames = (Frame("/job/train.py", 7, "step"),)
    main = Thread(10, "python", "S", active=False, owns_gil=owns_gil, frames=frames, native_frames=native)
    looks = tuple(ProcessState(at=float(at), state="S", threads=(main,)) for at in (0, 1))
    return Process(10, 1, "rank", looks=looks), main, frames
