"""Stacks as py-spy, faulthandler, gdb and pystack print them, read back: whose, which thread, which frames, and where
each stands."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from pasted_stacks import ALL_REDUCE, BARRIER, LOADER, MAIN, QUEUE, as_json, faulthandler, lines, py_spy, stacks, step

from hangdoc.capture.logs.lines import Line
from hangdoc.capture.logs.stack_lines import frame_line, full_name, thread_line
from hangdoc.capture.logs.stack_ranks import rank_in_heading, ranks_by_name
from hangdoc.capture.logs.stacks import stacks_in, stacks_in_json
from hangdoc.model.logged import LogStack, Place
from hangdoc.model.process import Frame

LOGS = Path(__file__).parents[5] / "shared" / "data" / "logs"


def mains(found: list[LogStack]) -> dict[int | None, tuple[str, int]]:
    """Rank → file and line of its main thread's innermost Python frame."""
    return {s.rank: (s.frames[0].file, s.frames[0].line) for s in found if s.main and not s.native}


def handed(case: str) -> dict[str, str]:
    folder = LOGS / case / "input"
    if not folder.is_dir():
        pytest.skip("the handed logs are not here")
    return {path.name: path.read_text() for path in sorted(folder.iterdir())}


# --- py-spy --------------------------------------------------------------------------------------------------------


def test_py_spy_text_gives_threads_frames_and_their_places() -> None:
    found = stacks_in(lines("=== rank 3 ===\n" + py_spy(4711, [*ALL_REDUCE, *step(10), *MAIN])))
    main, other = found
    assert (main.rank, main.pid, main.tid, main.thread, main.main, main.idle) == (
        3,
        4711,
        4711,
        "MainThread",
        True,
        True,
    )
    assert main.place == Place("stacks.txt", 5, "py-spy")
    assert main.frames[2] == Frame("train.py", 10, "step")
    assert main.frames[0].file == "site-packages/torch/distributed/distributed_c10d.py"
    assert (other.thread, other.main, other.frames[0].file) == ("Thread-1", False, "lib/python3.11/threading.py")


@pytest.mark.parametrize(
    ("line", "tid", "idle", "gil", "name"),
    [
        ('Thread 39 (idle): "MainThread"', 39, True, False, "MainThread"),
        ('Thread 39 (active+gil): "loss "quoted" name"', 39, False, True, 'loss "quoted" name'),
        ("Thread 0x7F2A1C3D4E00 (active)", 0, False, False, ""),
    ],
)
def test_py_spy_threads_old_and_new(line: str, tid: int, idle: bool, gil: bool, name: str) -> None:
    opened = thread_line(line)
    assert opened is not None
    assert (opened.kind, opened.tid, opened.idle, opened.gil, opened.name) == ("py-spy", tid, idle, gil, name)


def test_native_frames_below_the_innermost_python_frame_are_a_stack_of_their_own() -> None:
    native = [("0x7f0650ca3f16", "libc.so.6", 0), ("c10d::Foo::wait(std::map<int (*)()>)", "libtorch_cpu.so", 0)]
    frames = [*native, ("spin", "native/spin.cpp", 12), *ALL_REDUCE, *MAIN, ("_start", "python3.11", 0)]
    first, second = (s for s in stacks_in(lines(py_spy(7, frames))) if s.main)
    assert first.native
    assert [f.function for f in first.frames] == ["0x7f0650ca3f16", "c10d::Foo::wait(std::map<int (*)()>)", "spin"]
    assert not second.native
    assert [f.function for f in second.frames] == ["all_reduce", "wrapper", "main", "<module>"]


def test_locals_of_py_spy_are_kept_masked() -> None:
    text = py_spy(7, [*step(10), *MAIN], alone=True).replace(
        "(train.py:10)\n",
        '(train.py:10)\n        Arguments:\n            rank: 3\n        Locals:\n            token: "hunter2"\n',
    )
    (main,) = stacks_in(lines(text))
    assert {local.name: local.value for local in main.frames[0].locals} == {"rank": "3", "token": "'…'"}
    assert [f.line for f in main.frames] == [10, 50, 60]


def test_a_short_name_is_a_librarys_only_if_it_can_be_none_of_the_users() -> None:
    none: frozenset[str] = frozenset()
    assert full_name("queue.py", "3.12", none) == "lib/python3.12/queue.py"
    assert full_name("torch/nn/modules/module.py", "3.12", none) == "site-packages/torch/nn/modules/module.py"
    assert full_name("servekit/scheduler.py", "3.12", none) == "servekit/scheduler.py"
    assert full_name("<string>", "3.12", none) == "<string>"
    # A script that is called like a module of Python's is the one that runs as a program.
    text = py_spy(7, [*QUEUE, ("feed", "profile.py", 4), ("<module>", "profile.py", 9)], alone=True)
    assert [f.file for f in stacks_in(lines(text))[0].frames[2:]] == ["profile.py", "profile.py"]


# --- whose stack it is ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("heading", "rank"),
    [
        ("=== rank 0 ===", 0),
        ("# Rank: 12", 12),
        ("rank3:", 3),
        ("RANK=3 LOCAL_RANK=1 WORLD_SIZE=8", 3),
        ("[2026-01-29 13:12:37 TP1] Pyspy dump for PID 88693:", 1),
        ("TP0", 0),
        ("LOCAL_RANK=1", None),
        ("local rank 2", None),
        ("node_rank: 1", None),
        ("[2026-01-29 13:12:37 PP2 TP1] Pyspy dump for PID 88693:", None),
        ("rank 0 waits for rank 1", None),
        ("ranks 0 to 3", None),
        ("rank 0.5 of the matrix", None),
        ("rank 3 " + "x" * 200, None),
    ],
)
def test_a_heading_tells_the_global_rank_or_none(heading: str, rank: int | None) -> None:
    assert rank_in_heading(heading) == rank


@pytest.mark.parametrize("heading", ["=== rank {} ===", "rank {}:", "TP{}", "RANK={} WORLD_SIZE=4", "[rank{}]"])
def test_processes_one_after_the_other_have_the_rank_above_each(heading: str) -> None:
    text = "".join(heading.format(r) + "\n" + py_spy(100 + r, [*ALL_REDUCE, *step(10 + r), *MAIN]) for r in range(4))
    found = stacks_in(lines(text))
    assert {s.rank: s.pid for s in found} == {0: 100, 1: 101, 2: 102, 3: 103}


def test_a_heading_counts_for_the_next_process_alone() -> None:
    text = "rank 2\n" + py_spy(8, [*ALL_REDUCE, *MAIN]) + py_spy(9, [*QUEUE, *MAIN])
    assert {s.pid: s.rank for s in stacks_in(lines(text))} == {8: 2, 9: None}


def test_the_title_of_a_process_tells_its_rank_unless_there_are_more_dimensions() -> None:
    text = py_spy(8, MAIN, title="sglang::scheduler_TP3") + py_spy(9, MAIN, title="sglang::scheduler_PP1_TP2")
    assert {s.pid: s.rank for s in stacks_in(lines(text))} == {8: 3, 9: None}


def test_torchs_own_rank_and_sruns_task_tell_who_speaks() -> None:
    text = faulthandler([*ALL_REDUCE, *MAIN])
    prefixed = "".join(f"[rank5]:{line}\n" for line in text.splitlines())
    tasks = "".join(f"12: {line}\n" for line in text.splitlines() if line)
    assert {s.rank for s in stacks_in(lines(prefixed))} == {5}
    assert {s.rank for s in stacks_in(lines(tasks))} == {12}


def test_interleaved_streams_are_read_each_by_itself() -> None:
    texts = [faulthandler([*ALL_REDUCE, *step(10 + r), *MAIN], r).splitlines() for r in range(3)]
    mixed = "\n".join(f"[rank{r}]:{line}" for pieces in zip(*texts, strict=True) for r, line in enumerate(pieces))
    found = stacks_in(lines(mixed))
    assert {s.rank: s.frames[2].line for s in found if s.main} == {0: 10, 1: 11, 2: 12}


def test_the_name_of_a_file_tells_the_rank_if_nothing_in_it_does() -> None:
    assert ranks_by_name({"a/rank3.json": 9, "b/stack_4.txt": 10}) == {"a/rank3.json": 3, "b/stack_4.txt": 4}
    assert ranks_by_name({"rank_2/stack.txt": 0}) == {"rank_2/stack.txt": 2}
    assert ranks_by_name({"local_rank1.txt": 0, "node_rank2.txt": 0}) == {}
    assert ranks_by_name({"stack_4711.txt": 0}) == {}  # a pid
    assert ranks_by_name({"dump.12.txt": 12}) == {}
    assert ranks_by_name({"2026-11-28.txt": 0}) == {}
    assert ranks_by_name({"a/stack_0.txt": 1, "b/stack_0.txt": 2}) == {}  # of two hosts
    found = stacks({"rank1.txt": "rank 7\n" + py_spy(5, MAIN), "rank2.txt": py_spy(6, MAIN)})
    assert {s.pid: s.rank for s in found} == {5: 7, 6: 2}


def test_a_file_of_several_processes_gives_none_of_them_its_number() -> None:
    found = stacks({"node_1.txt": py_spy(5, MAIN) + py_spy(6, MAIN)})
    assert {s.rank for s in found} == {None}


def test_the_environment_counts_where_only_one_was_printed() -> None:
    one = "RANK=6 LOCAL_RANK=2 WORLD_SIZE=8\n" + "step 1\n" * 30 + faulthandler(MAIN)
    assert {(s.rank, s.world_size) for s in stacks_in(lines(one))} == {(6, 8)}
    several = "RANK=6 WORLD_SIZE=8\nRANK=7 WORLD_SIZE=8\n" + "step 1\n" * 30 + faulthandler(MAIN)
    assert {(s.rank, s.world_size) for s in stacks_in(lines(several))} == {(None, 8)}


# --- faulthandler, gdb, pystack ------------------------------------------------------------------------------------


def test_faulthandler_prints_the_main_thread_last() -> None:
    found = stacks_in(lines("step 3\n" + faulthandler([*ALL_REDUCE, *step(9), *MAIN])))
    assert [s.main for s in found] == [False, True]
    assert [f.function for f in found[1].frames] == ["all_reduce", "wrapper", "step", "main", "<module>"]
    assert found[1].idle is None


def test_a_thread_that_python_started_is_never_the_main_one() -> None:
    text = "Fatal Python error: Aborted\n\nCurrent thread 0x00007f01 [feed] (most recent call first):\n"
    text += '  File "/opt/lib/python3.14/queue.py", line 171 in get\n'
    text += '  File "/opt/lib/python3.14/threading.py", line 1 in _bootstrap\n'
    (only,) = stacks_in(lines(text))
    assert not only.main
    assert only.thread == "feed"  # Python 3.14


def test_the_second_time_out_begins_another_look() -> None:
    twice = faulthandler([*BARRIER, *step(4), *MAIN]) + faulthandler([*ALL_REDUCE, *step(9), *MAIN])
    assert len({s.dump for s in stacks_in(lines(twice))}) == 2


def test_a_traceback_is_no_stack_of_a_thread() -> None:
    text = 'Traceback (most recent call last):\n  File "train.py", line 3, in <module>\n    main()\nValueError: x\n'
    assert stacks_in(lines(text)) == []


def test_torchs_own_frames_are_no_stack_of_gdbs() -> None:
    text = (
        "#0 all_reduce from /x/distributed_c10d.py:2954\n#1 wrapper from /x/c10d_logger.py:81\nframe #0: c10::Error\n"
    )
    assert stacks_in(lines(text)) == []


def test_gdb_gives_functions_without_their_arguments() -> None:
    text = (
        '[New LWP 13]\n\nThread 2 (Thread 0x7f02 (LWP 13) "pt_autograd_0"):\n'
        "#0  0x00007f in poll () from /lib/libc.so.6\n\n"
        'Thread 1 (Thread 0x7f01 (LWP 12) "python3"):\n'
        "#0  0x00007f11 in ncclLocalOpAppend () from /opt/nccl/lib/libnccl.so.2\n"
        "#1  std::function<void (int)>::operator() (this=0x1, f=0x2 <g(int)>) at /src/f.h:42\n"
        "#10 0x00007f in c10d::P::allreduce_impl(at::Tensor&, char const*) () from /opt/libtorch_cuda.so\n"
    )
    other, main = stacks_in(lines(text, "gdb-rank1.txt"))
    assert (main.main, main.native, main.pid, main.tid, main.rank) == (True, True, 12, 12, 1)
    assert [(f.function, f.file, f.line) for f in main.frames] == [
        ("ncclLocalOpAppend", "/opt/nccl/lib/libnccl.so.2", 0),
        ("std::function<void (int)>::operator()", "/src/f.h", 42),
        ("c10d::P::allreduce_impl(at::Tensor&, char const*)", "/opt/libtorch_cuda.so", 0),
    ]
    assert (other.main, other.thread) == (False, "pt_autograd_0")


def test_gdbs_py_bt_gives_python_frames() -> None:
    text = 'Thread 1 (Thread 0x7f01 (LWP 12) "python3"):\nTraceback (most recent call first):\n'
    text += (
        '  File "/work/train.py", line 9, in step\n    dist.barrier()\n  File "/work/train.py", line 20, in <module>\n'
    )
    (main,) = stacks_in(lines(text))
    assert (main.native, main.main) == (False, True)
    assert main.frames == (Frame("/work/train.py", 9, "step"), Frame("/work/train.py", 20, "<module>"))


def test_pystack_is_turned_innermost_first() -> None:
    text = (
        "Traceback for thread 18 (python) [] (most recent call last):\n"
        '    (Python) File "/opt/lib/python3.11/threading.py", line 1002, in _bootstrap\n        self._go()\n\n'
        "Traceback for thread 17 (python) [Has the GIL] (most recent call last):\n"
        '    (C) File "Python/ceval.c", line 4, in PyEval (inlined) (/opt/libpython.so)\n'
        '    (Python) File "/work/train.py", line 10, in <module>\n        main()\n'
        '    (Python) File "/work/train.py", line 7, in main\n        time.sleep(60)\n'
        '    (C) File "./sleep.c", line 48, in clock_nanosleep (/usr/lib/libc.so.6)\n'
    )
    other, native, main = stacks_in(lines(text))
    assert (other.main, main.main, main.pid) == (False, True, 17)
    assert [f.function for f in main.frames] == ["main", "<module>"]
    assert [f.function for f in native.frames] == ["clock_nanosleep"]


def test_several_tools_in_one_file_are_told_apart() -> None:
    text = "rank 0\n" + py_spy(5, [*ALL_REDUCE, *MAIN]) + "rank 1\n" + faulthandler([*BARRIER, *MAIN])
    found = stacks_in(lines(text))
    assert {(s.rank, s.place.kind) for s in found} == {(0, "py-spy"), (1, "faulthandler")}


# --- JSON ----------------------------------------------------------------------------------------------------------


def test_json_of_py_spy() -> None:
    found = stacks_in_json("rank3.json", as_json(61, [*LOADER, *step(4), *MAIN]).encode())
    main = next(s for s in found if s.main)
    assert (main.rank, main.pid, main.thread, main.idle) == (3, 61, "MainThread", True)
    assert main.frames[4] == Frame("/work/train.py", 4, "step")
    two = as_json(61, MAIN) + "\n" + as_json(62, MAIN)
    assert {s.pid: s.rank for s in stacks_in_json("rank3.json", two.encode())} == {61: None, 62: None}


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"{}",
        b"null",
        b"[1, 2]",
        b'[{"frames": 3}]',
        b'[{"pid": "x", "frames": [{"name": [], "filename": {}, "line": "9"}], "process_info": [1]}]',
        b'[{"pid": {}, "frames": [], "process_info": {"parent": {"pid": 3}}}]',
        b"[" * 100_000,
        b"\xff\xfe\x00",
        b'[{"pid": 99999999999999999999, "thread_name": "a", "frames": []}]',
    ],
)
def test_json_of_others_gives_nothing_false(data: bytes) -> None:
    assert all(s.rank is None and s.pid == 0 for s in stacks_in_json("x.json", data))


def test_half_of_a_json_is_none() -> None:
    whole = as_json(61, MAIN).encode()
    assert stacks_in_json("rank0.json", whole[: len(whole) // 2]) == []


# --- what may stand in a file --------------------------------------------------------------------------------------


def test_a_hundred_thousand_frames_and_threads_are_bounded() -> None:
    began = time.process_time()
    deep = [Line("f", n, f"    f (a.py:{n})", body=f"    f (a.py:{n})") for n in range(2, 100_000)]
    opened = 'Thread 1 (idle): "MainThread"'
    (one,) = stacks_in([Line("f", 1, opened, body=opened), *deep])
    assert len(one.frames) == 512
    many = [f'Thread {n} (idle): "t"' for n in range(1, 100_000)]
    assert len(stacks_in([Line("f", n, text, body=text) for n, text in enumerate(many)])) == 512
    assert time.process_time() - began < 30


def test_a_flood_of_lines_like_threads_keeps_each_line_once() -> None:
    began = time.monotonic()
    assert len(lines("worker 7 (idle) waits\n" * 10_000)) == 10_000
    assert time.monotonic() - began < 20


@pytest.mark.parametrize(
    "junk", ["    " + "(" * 16_000 + ")", "#0  " + "<" * 16_000, "    " + ":" * 16_000 + ")", "x" * 16_000]
)
def test_a_long_line_takes_no_long_time(junk: str) -> None:
    began = time.monotonic()
    for kind in ("py-spy", "faulthandler", "gdb", "pystack"):
        frame_line(kind, junk)
        thread_line(junk)
    for begin in ('  File "', '    (C) File "', "Thread 1 (", "Traceback for thread 1 (", "Process 1: ", "rank "):
        rank_in_heading(begin + junk)
        frame_line("gdb", begin + junk)
        thread_line(begin + junk)
    assert time.monotonic() - began < 2


def test_control_characters_and_other_languages() -> None:
    text = py_spy(7, [("f\x1b]0;x\x07ü", "модель/обучение.py", 3), ("\u202egnp", "a b.py", 4), *MAIN], alone=True)
    (main,) = stacks_in(lines(text))
    assert main.frames[0].file == "модель/обучение.py"
    assert all(f.function.isprintable() and f.file.isprintable() for f in main.frames)
    assert main.frames[1].line == 4


def test_a_file_cut_anywhere_gives_a_beginning_of_what_the_whole_gives() -> None:
    text = "rank 1\n" + py_spy(7, [*ALL_REDUCE, *step(3), *MAIN]) + "rank 2\n" + faulthandler([*BARRIER, *MAIN])
    whole = stacks_in(lines(text))
    known = {frame for stack in whole for frame in stack.frames}
    for end in range(0, len(text), 7):
        last = text[:end].rpartition("\n")[0]
        cut = stacks_in(lines(last))
        assert {frame for stack in cut for frame in stack.frames} <= known
        assert {stack.rank for stack in cut} <= {1, 2}


_NAMES = st.text(
    st.characters(codec="utf-8", exclude_categories=("C", "Z"), exclude_characters='()":<>'), min_size=1, max_size=12
)
_FRAMES = st.lists(st.tuples(_NAMES, _NAMES.map("/w/{}.py".format), st.integers(1, 10**8)), min_size=1, max_size=6)


@settings(max_examples=60, deadline=None)
@given(st.lists(_FRAMES, min_size=1, max_size=4), st.booleans())
def test_what_is_printed_is_read_back(threads: list[list[tuple[str, str, int]]], of_py_spy: bool) -> None:
    text = "".join(
        f"rank {n}\n" + (py_spy(100 + n, frames, alone=True) if of_py_spy else faulthandler(frames, n, others=()))
        for n, frames in enumerate(threads)
    )
    found = stacks_in(lines(text))
    assert [(s.rank, [(f.function, f.file, f.line) for f in s.frames]) for s in found] == list(
        enumerate([(name, file, line) for name, file, line in frames] for frames in threads)
    )


_PIECES = [
    "Thread 1 (idle)", ': "MainThread"', "    f (a.py:1)", "rank 3", "Process 9: ", "\n", "#0  0x0 in f ()", " from x",
    '  File "a", line 3 in f', "(most recent call first):", "Thread 0x01 ", "[rank1]:", "\x00", "\x1b[31m", "(LWP 3)",
    "Timeout (0:00:01)!", "Traceback for thread 4 [] (most recent call last):", "RANK=", "é", "[", "{", "        a: 3",
]  # fmt: skip


@settings(max_examples=200, deadline=None)
@given(st.lists(st.sampled_from(_PIECES) | st.text(max_size=8), max_size=40).map("".join))
@example("\r#0  0x0 in f ()")
def test_no_text_breaks_the_reader(text: str) -> None:
    data = text.encode("utf-8", "surrogatepass")
    for stack in stacks_in(lines(data)):
        assert stack.place.line >= 1
        assert stack.rank is None or stack.rank >= 0
    stacks_in_json("a.json", data)


# --- the handed cases ----------------------------------------------------------------------------------------------


def test_handed_py_spy_text() -> None:
    found = stacks(handed("pyspy-early-return"))
    assert {s.rank: s.frames[2].file for s in found if s.main} == {
        0: "servekit/channel.py",
        1: "servekit/channel.py",
        2: "servekit/cache_pool.py",
        3: "servekit/channel.py",
    }


def test_handed_py_spy_json() -> None:
    found = stacks(handed("pyspy-json-loader"))
    assert {s.rank: s.frames[2].line for s in found if s.main} == {0: 88, 1: 118, 2: 88, 3: 88}


def test_handed_faulthandler_and_gdb() -> None:
    found = stacks(handed("faulthandler-one-rank"))
    assert [(s.rank, s.world_size, s.main) for s in found] == [(6, 8, False), (6, 8, False), (6, 8, True)]
    (inside,) = stacks({name: text for name, text in handed("w28-inside-the-enqueue").items() if "gdb" in name})
    assert (inside.rank, inside.main, inside.frames[0].function) == (1, True, "ncclLocalOpAppend")
