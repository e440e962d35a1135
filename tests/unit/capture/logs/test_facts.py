"""Each text becomes facts with rank, group, number, time and place, before anything is concluded from it."""

from __future__ import annotations

from pathlib import Path

import pytest
from made_logs import Torch, elastic, read, traceback

from hangdoc.capture.logs.lines import lines_of, rank_before, time_of
from hangdoc.model.codec import load_snapshot, snapshot_from_bytes
from hangdoc.model.encode import snapshot_to_bytes
from hangdoc.model.logged import Logged, together
from hangdoc.model.merge import merge
from hangdoc.model.process import Frame

T = Torch()


def _logged(folder: Path, **files: str) -> Logged:
    logged = read(folder, **files).logged
    assert logged is not None
    return logged


@pytest.mark.parametrize(
    ("version", "group", "sequence", "sizes", "at"),
    [
        ("1.12", "", -1, (-1, -1), False),
        ("2.0", "", 7, (-1, -1), False),
        ("2.1", "", 7, (64, 64), False),
        ("2.2", "", 7, (64, 64), False),
        ("2.3", "5", 7, (64, 64), False),
        ("2.4", "5(tp)", 7, (64, 64), True),
        ("2.5", "5(tp)", 7, (64, 64), True),
        ("2.8", "5(tp)", 7, (64, 64), True),
        ("2.14", "5(tp)", 7, (64, 64), True),
    ],
)
def test_an_overdue_call(
    tmp_path: Path, version: str, group: str, sequence: int, sizes: tuple[int, int], at: bool
) -> None:
    logged = _logged(
        tmp_path, job_3=Torch(version).overdue(3, 7, group="5", about="tp"), job_4=Torch(version).overdue(4, 7)
    )
    (call,) = [each for each in logged.overdue if each.rank == 3]
    assert (call.op, call.group, call.sequence, (call.numel_in, call.numel_out)) == (
        "ALLREDUCE",
        group,
        sequence,
        sizes,
    )
    assert (call.ran_ms, call.timeout_ms, call.member) == (600_010, 600_000, 3)
    assert (call.at > 0) == at
    assert (call.place.file, call.place.line, call.place.kind) == ("job_3.log", 1, "watchdog")


@pytest.mark.parametrize("version", ["2.3", "2.4", "2.5", "2.8", "2.14"])
def test_how_far_a_rank_is(tmp_path: Path, version: str) -> None:
    started = 9 if version == "2.14" else None
    logged = _logged(
        tmp_path, train=Torch(version).overdue(3, 7, member=1, group="5", enqueued=12, completed=6, started=started)
    )
    far = logged.progress[0]
    assert (far.rank, far.member, far.group, far.sequence) == (3, 1, "5", 7)
    assert (far.enqueued, far.completed, far.started) == (12, 6, 9 if started else -1)


def test_a_dump_signal_has_the_default_group_s_numbers(tmp_path: Path) -> None:
    logged = _logged(tmp_path, train=T.overdue(0, 58, group="9") + T.lives(1, caller=0, enqueued=6))
    assert [(each.rank, each.own) for each in logged.alive] == [(1, False), (1, False)]
    assert [(f.rank, f.group, f.enqueued) for f in logged.progress if f.rank == 1] == [(1, "0(default_pg)", 6)]


def test_the_stack_of_the_overdue_call(tmp_path: Path) -> None:
    logged = _logged(
        tmp_path, train=T.overdue(0, stack=("all_reduce from /lib/c10d.py:29", "step from /job/my train.py:44"))
    )
    assert logged.overdue[0].stack == (Frame("/lib/c10d.py", 29, "all_reduce"), Frame("/job/my train.py", 44, "step"))


def test_two_records_on_one_line_are_of_two_ranks(tmp_path: Path) -> None:
    first, second = (T.overdue(r).splitlines()[0] for r in (0, 1))
    assert {call.rank for call in _logged(tmp_path, train=first + second + "\n").overdue} == {0, 1}


def test_colours_quotes_hosts_and_dates_before_a_line(tmp_path: Path) -> None:
    line = T.overdue(2).splitlines()[0]
    dressed = [
        f"> {line}",
        f"\x1b[36m(Worker pid=7, ip=10.0.0.1)\x1b[0m {line}",
        f"2026-03-09 10:00:00.1 host-b {line}",
        f"[default1]:{line}",
        f"1: {line}",
    ]
    for i, text in enumerate(dressed):
        assert [call.rank for call in _logged(tmp_path / str(i), train=text + "\n").overdue] == [2]


@pytest.mark.parametrize(
    ("text", "label", "rank", "body"),
    [
        ("[rank3]:[E309 x", "", 3, "[E309 x"),
        ("[default1]:[rank5]: boom", "default1", 5, " boom"),
        ("[rank0]:[rank4]: boom", "rank0", 4, " boom"),
        ("12: step 4", "task 12", None, "step 4"),
        ("(WorkerDict pid=7211, ip=10.0.0.1) hello", "pid 7211 10.0.0.1", None, "hello"),
        ("12:30:11 step 4", "", None, "12:30:11 step 4"),
        ("plain text", "", None, "plain text"),
    ],
)
def test_who_speaks(text: str, label: str, rank: int | None, body: str) -> None:
    (line,) = lines_of("f", [(1, text.encode())])
    assert (line.label, line.rank, line.body) == (label, rank, body)


def test_the_nearest_rank_before_a_place_counts() -> None:
    assert rank_before("[rank0]: a [rank1]: b", 11) == 0
    assert rank_before("[rank0]: a [rank1]: b", 20) == 1
    assert rank_before("nothing", 4) is None


@pytest.mark.parametrize(
    ("text", "day"),
    [
        ("[E617 13:13:23.5", "06-17"),
        ("[E1205 17:00:09.9", "12-05"),
        ("E0314 07:31:10.0", "03-14"),
        ("[I221 08:00:40", "02-21"),
    ],
)
def test_torch_s_times_have_no_year(text: str, day: str) -> None:
    from datetime import datetime, timezone

    assert datetime.fromtimestamp(time_of(text, 2026), timezone.utc).strftime("%Y-%m-%d") == f"2026-{day}"
    assert time_of("no time [E9999 99:99:99", 2026) == 0.0


def test_the_ends_that_torchelastic_tells(tmp_path: Path) -> None:
    text = elastic((2, 1, "10:00:00"), (0, -15, "10:00:01"), (1, -9, "10:00:31"), asked=(0, 1), root=2)
    ends = {each.rank: each for each in _logged(tmp_path, console=text).ends}
    assert (ends[2].status, ends[2].signal, ends[2].asked, ends[2].first) == (1, None, False, True)
    assert (ends[0].signal, ends[0].asked) == (15, True)
    assert (ends[1].signal, ends[1].asked, ends[1].host) == (9, True, "gpu-1")


def test_the_ends_that_slurm_tells(tmp_path: Path) -> None:
    text = "srun: error: n7: tasks 0-2,5: Aborted (core dumped)\nsrun: error: n8: task 9: Exited with exit code 3\nsrun: error: n8: task 8: Out Of Memory\n"
    ends = {each.rank: each for each in _logged(tmp_path, slurm=text).ends}
    assert {r: e.signal for r, e in ends.items()} == {0: 6, 1: 6, 2: 6, 5: 6, 9: None, 8: 9}
    assert (ends[9].status, ends[9].host) == (3, "n8")


def test_tracebacks_of_ranks_that_write_between_each_other_s_lines(tmp_path: Path) -> None:
    one = traceback(0, "ValueError: a", ("/job/a.py", 1, "main"), ("/job/b.py", 2, "step")).splitlines()
    two = traceback(1, "KeyError: 'b'", ("/job/a.py", 3, "main"), ("/job/c.py", 4, "load")).splitlines()
    mixed = "\n".join(line for pair in zip(one, two, strict=True) for line in pair) + "\n"
    raised = {each.rank: each for each in _logged(tmp_path, train=mixed).raised}
    assert raised[0].error == "ValueError: a"
    assert raised[0].stack == (Frame("/job/b.py", 2, "step"), Frame("/job/a.py", 1, "main"))
    assert raised[1].error == "KeyError: 'b'"
    assert raised[1].stack[0].file == "/job/c.py"


def test_of_a_chain_of_exceptions_the_first_counts(tmp_path: Path) -> None:
    text = (
        traceback(0, "OSError: disk", ("/job/a.py", 1, "save"))
        + "[rank0]: \n[rank0]: During handling of the above exception, another exception occurred:\n[rank0]: \n"
        + traceback(0, "RuntimeError: cleanup", ("/job/a.py", 9, "stop"))
    )
    assert _logged(tmp_path, train=text).raised[0].error == "OSError: disk"


def test_what_a_rank_wrote_last_of_its_own_work(tmp_path: Path) -> None:
    logged = _logged(
        tmp_path, job_0="step 1\nstep 2\n" + T.overdue(0), job_1="step 1\nvalidating 7/90\n" + T.lives(1, caller=0)
    )
    assert {each.rank: each.last for each in logged.streams} == {0: "step 2", 1: "validating 7/90"}


def test_a_folder_of_torchrun_s_logs_has_its_last_attempt(tmp_path: Path) -> None:
    files = {f"run_x__attempt_{a}__{r}__stderr.log": T.overdue(r, 10 * (a + 1)) for a in (0, 1) for r in (0, 1)}
    logged = _logged(tmp_path, **files)
    assert {call.sequence for call in logged.overdue} == {20}
    assert logged.attempts == 2


def test_a_snapshot_of_logs_is_saved_and_joined(tmp_path: Path) -> None:
    job = read(tmp_path, train=T.overdue(0) + T.overdue(1))
    assert snapshot_from_bytes(snapshot_to_bytes(job)) == job
    (tmp_path / "a.hangdoc").write_bytes(snapshot_to_bytes(job))
    assert load_snapshot(tmp_path / "a.hangdoc").mode == "log"
    other = read(tmp_path / "b", train2=T.overdue(2))
    both = merge([job, other])
    assert both == merge([other, job])
    assert both.logged is not None
    assert {call.rank for call in both.logged.overdue} == {0, 1, 2}
    assert together([]) is None


@pytest.mark.parametrize(
    "text",
    [
        "", "\0" * 1000, "\x1b]0;evil\x07" * 50, "WorkNCCL(SeqNum=" + "9" * 400, "[rank99999999999999]: Traceback (most recent call last):\n",
        "[rank1]: Traceback (most recent call last):\n" * 500, "WorkNCCL(" * 5000, "[" * 20000 + "Rank 1] WorkNCCL(SeqNum=1, OpType=X",
        "=" * 5000 + "\nexitcode : " + "1" * 500, "srun: error: n: tasks 0-999999999: Killed\n", "[0] Timeout at collective: X, #1\n" + "[1, 2] started\n" * 300,
        "Not all ranks joining collective: sequence number: 1\nmissing ranks: {" + ",".join(map(str, range(5000))) + "}\n",
        "n:1:1 [0] NCCL INFO X: opCount zz count 1 datatype 1 op 0 root 0 comm 0x1\n",
    ],
)  # fmt: skip
def test_hostile_text_is_read_in_bounded_time(tmp_path: Path, text: str) -> None:
    import time

    from hangdoc.capture.logs.read_logs import read_logs

    (tmp_path / "train.log").write_text(text, errors="replace")
    begun = time.process_time()
    read_logs([tmp_path])
    assert time.process_time() - begun < 3


def test_links_and_devices_in_a_folder_are_not_opened(tmp_path: Path) -> None:
    import os

    from hangdoc.capture.logs.read_logs import read_logs

    (tmp_path / "secret").write_text(T.overdue(5))
    folder = tmp_path / "logs"
    folder.mkdir()
    (folder / "link.log").symlink_to(tmp_path / "secret")
    os.mkfifo(folder / "pipe.log")
    (folder / "train.log").write_text(T.overdue(1))
    job = read_logs([folder])
    assert job is not None
    assert job.logged is not None
    assert {call.rank for call in job.logged.overdue} == {1}
