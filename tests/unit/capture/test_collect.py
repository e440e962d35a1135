"""What is left of a job as one file: its verdict is that of the originals, from one host or from many."""

from __future__ import annotations

import gzip
import json
import os
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest
from device_dumps import folder as dumps
from made_logs import Torch, elastic, traceback
from secret_corpus import LINES
from terminal import HANGDOC, environment

from hangdoc import api
from hangdoc.capture import collect
from hangdoc.capture.asking import HostsRequest
from hangdoc.capture.logs import carried
from hangdoc.capture.request import CaptureOptions
from hangdoc.capture.transports import rsh
from hangdoc.errors import CannotLook, HangdocError
from hangdoc.model import codec
from hangdoc.model.diagnosis import Diagnosis
from hangdoc.model.snapshot import JobSnapshot, Unavailable

SHARED = Path(__file__).parents[4] / "shared" / "data" / "logs"
TORCH = Torch()
LOOP = "all_reduce all_reduce all_reduce"
HUNG = {0: f"{LOOP} barrier*", 1: f"{LOOP} barrier*", 2: LOOP, 3: f"{LOOP} barrier*"}


def logs(where: Path, *ranks: int, size: int = 4, behind: int = 2) -> Path:
    """A file of each rank: all but one wait in #7, and that one lives."""
    where.mkdir(parents=True, exist_ok=True)
    for rank in ranks:
        text = TORCH.member(rank, rank, size, "0") + f"rank {rank} reads its shard\n"
        text += TORCH.lives(rank, caller=0) if rank == behind else TORCH.overdue(rank, enqueued=7, completed=6)
        (where / f"rank_{rank}.log").write_text(text)
    return where


def carried_off(*paths: Path, **options: Path) -> JobSnapshot:
    """What `collect` writes, read again from its file."""
    first = paths[0] if paths[0].is_dir() else paths[0].parent
    file = first.parent / "carried.hangdoc"
    api.save(api.collect(*paths, **options), file)
    return api.load(file)


CASES = [*sorted(SHARED.glob("[!x]*/input")), SHARED / "x-crash/input", SHARED / "x-second-attempt/input"]


@pytest.mark.skipif(not SHARED.is_dir(), reason="no shared cases here")
@pytest.mark.parametrize("case", CASES, ids=lambda path: path.parent.name)
def test_the_verdict_on_logs_is_that_of_the_originals(case: Path, tmp_path: Path) -> None:
    original = api.diagnose(case)
    file = tmp_path / "job.hangdoc"
    api.save(api.collect(case), file)
    assert api.diagnose(file) == original
    # And where the lines come from a host, and their facts are found here.
    answer = codec.snapshot_from_bytes(
        codec.snapshot_to_bytes(collect.packed(collect.parts_here(collect.Local([case]))))
    )
    logged = [collect.Part("host", part) for part in collect._unpacked(answer) if part.logged is not None]
    found = collect._joined_logs(logged, None)
    assert found is not None
    assert replace(api.diagnose(found), unavailable=()) == replace(original, unavailable=())


@pytest.mark.parametrize("kinds", [("logs",), ("dumps",), ("logs", "dumps")], ids="+".join)
def test_a_folder_of_logs_dumps_or_both(kinds: tuple[str, ...], tmp_path: Path) -> None:
    job = tmp_path / "job"
    job.mkdir()
    if "dumps" in kinds:
        dumps(job, HUNG, size=4)
    if "logs" in kinds:
        logs(job, 0, 1, 2, 3)
    original = api.diagnose(job)
    assert (original.outcome, original.culprits) == ("hang", (2,))
    found = carried_off(job)
    assert api.diagnose(found) == original
    assert (found.logged is not None) == ("logs" in kinds)
    assert any(rank.journal for rank in found.ranks) == ("dumps" in kinds)


def test_several_folders_and_files(tmp_path: Path) -> None:
    (tmp_path / "dumps").mkdir()
    dumps(tmp_path / "dumps", HUNG, size=4)
    for number, ranks in enumerate(((0, 1), (2, 3))):
        logs(tmp_path / f"host{number}", *ranks)
        (tmp_path / f"host{number}" / "same.log").write_text(traceback(number, "KeyError: 'x'", ("/j.py", 12, "f")))
    (tmp_path / "more.log").write_text(TORCH.overdue(3, enqueued=7))
    found = carried_off(*(tmp_path / name for name in ("host0", "host1", "dumps", "more.log")))
    assert found.logged is not None
    assert {"host0/same.log", "host1/same.log", "more.log"} <= {line.file for line in found.logged.lines}
    assert sorted(rank.rank for rank in found.ranks if rank.journal is not None) == [0, 1, 2, 3]
    verdict = api.diagnose(found)
    assert (verdict.outcome, verdict.culprits) == ("hang", (2,))
    with pytest.raises(CannotLook) as caught:
        api.collect(tmp_path / "no", tmp_path / "none")
    assert caught.value.what == f"there is nothing to collect: there is no {tmp_path}/no"


def test_several_jobs_of_one_folder_are_kept(tmp_path: Path) -> None:
    for number, ranks in enumerate((HUNG, dict.fromkeys(range(4), LOOP))):
        (tmp_path / "all" / f"replica_{number}").mkdir(parents=True)
        ahead = dict.fromkeys(ranks, 10.0 * number)
        dumps(tmp_path / "all" / f"replica_{number}", ranks, size=4, after=650.0 + 10 * number, ahead=ahead)
    original = api.diagnose(tmp_path / "all")
    assert len(original.others) == 1
    assert api.diagnose(carried_off(tmp_path / "all")) == original


def test_other_jobs_are_left_out_where_the_file_would_be_too_large(tmp_path: Path, monkeypatch) -> None:
    (tmp_path / "job").mkdir()
    dumps(tmp_path / "job", HUNG, size=4)
    alone = api.load(tmp_path / "job")
    both = replace(alone, others=(alone,))
    monkeypatch.setattr(codec, "MAX_EXPANDED", int(len(gzip.decompress(codec.snapshot_to_bytes(both))) * 0.75))
    found = codec.snapshot_from_bytes(codec.readable_bytes(both))
    assert found.others == ()
    assert "1 other jobs of the folder were left out" in found.unavailable[-1].why
    monkeypatch.setattr(codec, "MAX_EXPANDED", 1000)
    with pytest.raises(HangdocError) as caught:
        codec.readable_bytes(both)
    assert "Collect less at a time" in caught.value.remedy


# What is in the file


def test_the_lines_and_the_versions_are_there_to_be_read(tmp_path: Path) -> None:
    job = logs(tmp_path / "job", 0, 1, 2, 3)
    (job / "nccl.log").write_text(
        "n0:1:1 [0] NCCL INFO NCCL version 2.21.5+cuda12.4\nn0:1:1 [0] NCCL INFO cudaDriverVersion 12040\n"
    )
    (job / "train.err").write_text("noise\n" * 50 + traceback(1, "KeyError: 'x'", ("/job/train.py", 12, "work")))
    found = carried_off(job)
    assert found.versions == (("CUDA driver", "12.4"), ("NCCL", "2.21.5+cuda12.4"))
    assert found.logged is not None
    texts = [line.text for line in found.logged.lines]
    assert sum("Watchdog caught collective operation timeout" in text for text in texts) >= 3
    assert any("KeyError" in text for text in texts)
    assert any('File "/job/train.py", line 12' in text for text in texts)
    assert texts.count("noise") == 1  # the last word of rank 1 before its exception, and no other
    for line in found.logged.lines:
        assert line.text == (job / line.file).read_text().splitlines()[line.number - 1]


def test_of_very_many_lines_each_file_keeps_some(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(carried, "MOST_LINES", 40)
    job = tmp_path / "job"
    job.mkdir()
    for rank in range(2):
        text = "".join(TORCH.overdue(rank, n, enqueued=n) for n in range(1, 60))
        (job / f"rank_{rank}.log").write_text(text)
    found = api.collect(job).logged
    assert found is not None
    kept = {rank: [line.number for line in found.lines if line.file == f"rank_{rank}.log"] for rank in range(2)}
    assert [len(numbers) for numbers in kept.values()] == [20, 20]
    assert kept[0][0] == 1
    assert max(kept[0]) > 300


def test_what_a_host_may_not_send_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(carried, "_MOST_TEXT", 20_000)
    job = tmp_path / "job"
    job.mkdir()
    (job / "all.log").write_text("".join(TORCH.overdue(n % 4, n // 4 + 1, enqueued=n) for n in range(200)))
    (part,) = collect.parts_here(collect.Local([job]))
    assert part.logged is not None
    assert sum(len(line.text) for line in part.logged.lines) < 20_000 * 1.3
    assert "lines, so that a host does not send too much" in part.logged.files[0].cut


def test_secrets_do_not_leave(tmp_path: Path) -> None:
    job = logs(tmp_path / "job", 0, 1, 2, 3)
    for number, (line, _) in enumerate(LINES):
        text = traceback(number % 4, f"RuntimeError: {line}", ("/job/train.py", 12, "work"))
        (job / f"extra_{number}.txt").write_text(text + line + "\n")
    secrets = [secret for _, secret in LINES]
    api.save(api.collect(job), tmp_path / "a.hangdoc")
    text = gzip.decompress((tmp_path / "a.hangdoc").read_bytes()).decode()
    assert [secret for secret in secrets if secret in text] == []
    done = capture(job)
    assert done.returncode == 0, done.stderr
    assert [secret for secret in secrets if secret in gzip.decompress(done.stdout).decode()] == []


def capture(*paths: Path, **variables: str) -> subprocess.CompletedProcess[bytes]:
    """What a host is asked for."""
    words = [word for path in paths for word in ("--path", str(path))]
    line = [*HANGDOC, "capture", *words, "--only-paths"]
    return subprocess.run(line, env=environment(**variables), capture_output=True, timeout=60, check=False)


def test_nobody_reads_as_root_what_somebody_names(tmp_path: Path) -> None:
    done = capture(logs(tmp_path / "job", 0, 1), SUDO_UID="1000")
    assert (done.returncode, done.stdout) == (2, b"")
    assert b"reads no folders that somebody names under sudo" in done.stderr


def test_pipes_links_and_saved_files_in_the_folder_are_no_evidence(tmp_path: Path) -> None:
    job = logs(tmp_path / "job", 0, 1, 2, 3)
    original = api.diagnose(job)
    os.mkfifo(job / "pipe.log")
    (tmp_path / "elsewhere.log").write_text(TORCH.overdue(9, 900))
    (job / "link.log").symlink_to(tmp_path / "elsewhere.log")
    before = time.monotonic()
    assert api.diagnose(carried_off(job)) == original
    assert time.monotonic() - before < 20
    # Nor is the file that a first collection has left there.
    for _ in range(2):
        api.save(api.collect(job, output=job / "job.hangdoc"), job / "job.hangdoc")
    assert api.diagnose(job / "job.hangdoc") == original


def test_dumps_beside_live_ranks_count_only_if_they_are_of_now(tmp_path: Path) -> None:
    from cases import case

    (tmp_path / "job").mkdir()
    dumps(tmp_path / "job", HUNG, size=4)
    live = api.load(case("uneven_batches"))
    found = collect._together([live, api.load(tmp_path / "job")])
    assert api.diagnose(found).culprits == api.diagnose(live).culprits
    bare = replace(live, ranks=tuple(replace(rank, journal=None) for rank in live.ranks))
    found = collect._together([bare, api.load(tmp_path / "job")])
    assert [rank.rank for rank in found.ranks if rank.journal is not None] == []
    assert any("do not count beside the processes: " in note.why for note in found.unavailable)


# Many hosts


@pytest.fixture
def hosts(tmp_path: Path) -> HostsRequest:
    """A host a and a host b, on which /…/data is the folder of its name."""
    (tmp_path / "ask").write_text(
        f'#!/bin/sh\nhost=$1; shift\nexec {sys.executable} -m hangdoc $(echo "$@" | sed s,/data,/$host,g)\n'
    )
    (tmp_path / "ask").chmod(0o700)
    options = CaptureOptions(paths=(str(tmp_path / "data"),), live=False)
    return HostsRequest(["a", "b"], rsh(f"{tmp_path}/ask {{host}}"), [], seconds=60.0, options=options)


def on_hosts(request: HostsRequest, folder: Path) -> tuple[JobSnapshot, Diagnosis]:
    found = api.collect(folder / "data", request=request, options=request.options)
    api.save(found, folder / "job.hangdoc")
    return found, api.diagnose(folder / "job.hangdoc")


def test_logs_of_two_hosts(tmp_path: Path, hosts: HostsRequest) -> None:
    logs(tmp_path / "all" / "a", 0, 1)
    logs(tmp_path / "all" / "b", 2, 3)
    (tmp_path / "all" / "a" / "agent.log").write_text(elastic((0, -6, "10:00:02"), asked=(1,)))
    original = api.diagnose(tmp_path / "all")
    for host in "ab":
        (tmp_path / "all" / host).rename(tmp_path / host)
    found, verdict = on_hosts(hosts, tmp_path)
    assert original.culprits == (2,)
    assert replace(verdict, unavailable=()) == replace(original, unavailable=())
    assert found.logged is not None
    assert {line.file.partition("/")[0] for line in found.logged.lines} == {"a", "b"}


@pytest.mark.parametrize("behind", [0, 3])
def test_dumps_of_two_hosts(behind: int, tmp_path: Path, hosts: HostsRequest) -> None:
    (tmp_path / "all").mkdir()
    ranks = {rank: LOOP if rank == behind else f"{LOOP} barrier*" for rank in range(4)}
    dumps(tmp_path / "all", ranks, size=4)
    original = api.diagnose(tmp_path / "all")
    files = sorted(path for path in (tmp_path / "all").iterdir() if path.is_file())
    for number, file in enumerate(files):
        (tmp_path / "ab"[number // 2]).mkdir(exist_ok=True)
        file.rename(tmp_path / "ab"[number // 2] / file.name)
    _, verdict = on_hosts(hosts, tmp_path)
    assert (verdict.outcome, verdict.culprits) == ("hang", (behind,))
    assert replace(verdict, unavailable=()) == replace(original, unavailable=())
    # None is missing because it lies on the other host.
    assert [note.why for note in verdict.unavailable if "no dump" in note.why] == []


def test_an_earlier_run_that_a_host_has_left_is_not_of_this_one(tmp_path: Path, hosts: HostsRequest) -> None:
    for host, ranks, ahead in (("a", (0, 1), 7200.0), ("b", (2, 3), 0.0)):
        (tmp_path / host).mkdir()
        calls = {rank: HUNG[rank] for rank in ranks}
        dumps(tmp_path / host, calls, size=4, ahead=dict.fromkeys(ranks, ahead))
    found, verdict = on_hosts(hosts, tmp_path)
    assert [rank.rank for rank in found.ranks] == [0, 1]
    assert any("ranks 2 and 3 on b were left out: they are of another" in note.why for note in found.unavailable)
    assert {note.rank for note in found.unavailable if note.what == "journal"} >= {2, 3}
    assert not {2, 3} <= set(verdict.culprits)


def test_a_folder_that_hosts_share_is_read_once(tmp_path: Path, hosts: HostsRequest) -> None:
    shared = logs(tmp_path / "share", 0, 1, 2, 3)
    original = api.diagnose(shared)
    for host in "ab":
        (tmp_path / host).symlink_to(shared)
    found, verdict = on_hosts(hosts, tmp_path)  # here there is no such folder
    assert replace(verdict, unavailable=()).culprits == original.culprits
    assert found.logged is not None
    assert len(found.logged.files) == 4
    (tmp_path / "data").symlink_to(shared)
    found, verdict = on_hosts(hosts, tmp_path)
    assert verdict == original
    assert found.logged is not None
    assert {line.file for line in found.logged.lines} == {f"rank_{rank}.log" for rank in range(4)}


def test_hosts_ask_other_hosts(tmp_path: Path, hosts: HostsRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SUDO_UID", raising=False)
    logs(tmp_path / "share", 0, 1, 2, 3)
    options = replace(hosts.options, paths=(str(tmp_path / "share"),))
    request = replace(hosts, hosts=["a", "b", "c"], options=options, at_once=1)
    found = api.collect(request=request)
    assert [note.why for note in found.unavailable if note.what == "hosts"] == []
    assert api.diagnose(found).culprits == (2,)


def test_hosts_that_fail_and_paths_that_are_nowhere(tmp_path: Path, hosts: HostsRequest) -> None:
    nowhere = replace(hosts.options, paths=("/nowhere/at/all",))
    with pytest.raises(CannotLook) as caught:
        api.collect("/nowhere/at/all", request=replace(hosts, options=nowhere))
    assert caught.value.what == "no host has anything to collect: no host has /nowhere/at/all"
    logs(tmp_path / "a", 0, 1, 2, 3)
    (tmp_path / "b").mkdir()
    options = replace(hosts.options, paths=(str(tmp_path / "data"), "/nowhere/at/all"))
    found = api.collect(tmp_path / "data", "/nowhere/at/all", request=replace(hosts, options=options), options=options)
    assert Unavailable("log", "no host has /nowhere/at/all", "Check the path.") in found.unavailable
    assert api.diagnose(found).culprits == (2,)
    silent = replace(hosts, hosts=["a", "gone"], transport=rsh(f"{tmp_path}/only_a {{host}}"))
    (tmp_path / "only_a").write_text(
        f'#!/bin/sh\n[ $1 = a ] && exec {tmp_path}/ask "$@"\necho no such host >&2; exit 255\n'
    )
    (tmp_path / "only_a").chmod(0o700)
    found, verdict = on_hosts(silent, tmp_path)
    assert "gone: no such host" in [note.why for note in found.unavailable if note.what == "hosts"]
    assert verdict.culprits == (2,)


# The command


def run(*words: object, cwd: Path) -> subprocess.CompletedProcess[str]:
    line = [*HANGDOC, *map(str, words)]
    return subprocess.run(line, env=environment(), cwd=cwd, capture_output=True, text=True, timeout=60, check=False)


def test_the_command(tmp_path: Path) -> None:
    logs(tmp_path / "job", 0, 1, 2, 3)
    done = run("collect", "job", "-o", "job.hangdoc", cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("job.hangdoc (")
    assert done.stdout.endswith(" Next: hangdoc diagnose job.hangdoc\n")
    assert "the facts of 4 log files with " in done.stdout
    assert done.stdout.count("\n") == 1
    assert (tmp_path / "job.hangdoc").stat().st_mode & 0o777 == 0o600
    plain, verbose = (run("diagnose", "job.hangdoc", *more, cwd=tmp_path) for more in ([], ["-v"]))
    assert plain.returncode == verbose.returncode == 1
    assert "rank_0.log:2: " not in plain.stdout
    assert "rank_0.log:3: " in verbose.stdout
    document = json.loads(run("diagnose", "job.hangdoc", "--json", cwd=tmp_path).stdout)
    assert document == json.loads(run("diagnose", "job", "--json", cwd=tmp_path).stdout)


def test_what_cannot_be_collected_or_written(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    done = run("collect", "empty", "-o", "job.hangdoc", cwd=tmp_path)
    assert done.returncode == 3
    assert not (tmp_path / "job.hangdoc").exists()
    logs(tmp_path / "job", 0, 1, 2, 3)
    for output in ("job", "nowhere/job.hangdoc"):
        assert run("collect", "job", "-o", output, cwd=tmp_path).returncode == 2


def test_a_full_disk(tmp_path: Path) -> None:
    job = logs(tmp_path / "job", 0, 1, 2, 3)
    # Less than the file has: what the disk refuses is told in the same way. Compiled modules stay unwritten:
    # Python would leave them cut off, and whoever imports them next would end with an EOFError.
    code = "import resource, signal, sys; signal.signal(signal.SIGXFSZ, signal.SIG_IGN); "
    code += "resource.setrlimit(resource.RLIMIT_FSIZE, (100, 100)); from hangdoc.cli import main; sys.exit(main())"
    line = [sys.executable, "-c", code, "collect", str(job), "-o", str(tmp_path / "job.hangdoc")]
    quiet = {**environment(), "PYTHONDONTWRITEBYTECODE": "1"}
    done = subprocess.run(line, env=quiet, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode not in (0, 1)
    assert "cannot write" in done.stderr
    assert "Free some space" in done.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["job"]
