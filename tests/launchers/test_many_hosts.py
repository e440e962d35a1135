"""A real job on two hosts, each in namespaces of its own: captured there, joined here."""

from __future__ import annotations

import json
import shlex
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from hosts import why_not
from two_host_job import HANGDOC, Job, running

from hangdoc.model.codec import load_snapshot

_MISSING = why_not()
pytestmark = [pytest.mark.timeout(400), pytest.mark.skipif(bool(_MISSING), reason=_MISSING or "-")]


@pytest.fixture(scope="module")
def job(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Job]:
    with running(tmp_path_factory.mktemp("hosts")) as found:
        yield found


def test_every_host_captures_its_own_ranks_and_the_files_are_joined(job: Job, tmp_path: Path) -> None:
    files = []
    for host, rank in zip(job.hosts, (0, 2), strict=True):
        done = host.run(*HANGDOC, "capture", str(job.pids[rank]), env=job.environment)
        assert done.returncode == 0, done.stderr
        files.append(tmp_path / f"{host.name}.hangdoc")
        files[-1].write_bytes(done.stdout)
        snapshot = load_snapshot(files[-1])
        assert {each.rank for each in snapshot.ranks if each.process} == {rank, rank + 1}
        assert [each.name for each in snapshot.hosts] == [host.name]
    line = [*HANGDOC, "diagnose", "--json", *map(str, files)]
    done = subprocess.run(line, env=job.environment, cwd=tmp_path, capture_output=True, timeout=90, check=False)
    assert done.returncode == 1, done.stderr
    _is_the_verdict(json.loads(done.stdout))


def _is_the_verdict(document: dict[str, object]) -> None:
    assert document["outcome"] == "hang"
    assert document["culprits"] == [1]
    assert {rank["rank"]: rank["host"] for rank in document["ranks"]} == {0: "alpha", 1: "alpha", 2: "beta", 3: "beta"}


def test_one_command_asks_all_hosts(job: Job) -> None:
    done = job.attach("--hosts", "alpha,beta", "--rsh", job.rsh, "--remote-hangdoc", shlex.join(HANGDOC), "--json")
    assert (done.returncode, done.stderr) == (1, "")
    document = json.loads(done.stdout)
    _is_the_verdict(document)
    assert [note for note in document["unavailable"] if note["what"] in ("hosts", "other hosts", "ranks")] == []


def test_one_command_collects_what_all_hosts_have(job: Job, tmp_path: Path) -> None:
    (tmp_path / "logs").mkdir()
    (tmp_path / "logs" / "train.log").write_text("[rank0]: RuntimeError: NCCL version 2.21.5\n")
    words = ["--rsh", job.rsh, "--remote-hangdoc", shlex.join(HANGDOC), "--job", "WORLD_SIZE=4", "-o", "job.hangdoc"]
    line = [*HANGDOC, "collect", "logs", "--hosts", "alpha,beta,nowhere", *words]
    done = subprocess.run(line, env=job.environment, cwd=tmp_path, capture_output=True, timeout=120, check=False)
    assert (done.returncode, done.stderr) == (0, b"hangdoc: nowhere: no such host\n")
    assert b"the processes of 4 ranks on 2 hosts" in done.stdout
    line = [*HANGDOC, "diagnose", "--json", "job.hangdoc"]
    done = subprocess.run(line, env=job.environment, cwd=tmp_path, capture_output=True, timeout=90, check=False)
    assert done.returncode == 1, done.stderr
    _is_the_verdict(json.loads(done.stdout))


def test_a_silent_host_is_named_and_its_ranks_are_not_blamed(job: Job) -> None:
    words = ["--hosts", "alpha,asleep,nowhere", "--rsh", job.rsh, "--remote-hangdoc", shlex.join(HANGDOC)]
    done = job.attach(*words, "--host-timeout", "15", "--json")
    document = json.loads(done.stdout)
    # Two of four ranks differ, so it may be either of them; the ranks that nobody saw it never is.
    assert not {2, 3} & {*document["culprits"], *(rank for side in document["alternatives"] for rank in side)}
    assert "anks 2 and 3 run on another host" in json.dumps(document)
    notes = {note["why"] for note in document["unavailable"] if note["what"] == "hosts"}
    assert notes == {"asleep: did not answer within 15 s", "nowhere: no such host"}


def test_no_host_answers(job: Job) -> None:
    done = job.attach("--hosts", "nowhere", "--rsh", job.rsh)
    assert (done.returncode, done.stdout) == (3, "")
    assert done.stderr.startswith("hangdoc: nowhere: no such host")
    done = job.attach("--hosts", "alpha", "--rsh", job.rsh, "--remote-hangdoc", "/nowhere/hangdoc")
    assert done.returncode == 3
    assert "--remote-hangdoc" in done.stderr


def test_a_process_of_this_host_tells_which_job_the_others_show(job: Job) -> None:
    pid = job.outer_pid(0)
    done = job.attach(str(pid), "--hosts", "beta", "--rsh", job.rsh, "--remote-hangdoc", shlex.join(HANGDOC), "--json")
    assert done.returncode == 1, done.stderr
    document = json.loads(done.stdout)
    assert (document["outcome"], document["culprits"]) == ("hang", [1])
    assert {rank["rank"] for rank in document["ranks"] if rank["pid"]} == {0, 1, 2, 3}


def test_a_host_finds_the_job_by_its_key(job: Job) -> None:
    beta = job.hosts[1]
    done = beta.run(*HANGDOC, "capture", "--job", "TORCHELASTIC_RUN_ID=two%3B%20hosts", env=job.environment)
    assert done.returncode == 0, done.stderr
    assert b"captured ranks 2 and 3 on beta" in done.stderr
    done = beta.run(*HANGDOC, "capture", "--job", "TORCHELASTIC_RUN_ID=another", env=job.environment)
    assert (done.returncode, done.stdout) == (3, b"")
    assert b"no job with TORCHELASTIC_RUN_ID=another runs on beta" in done.stderr


def test_a_look_at_one_host_says_how_to_see_the_others(job: Job) -> None:
    alpha, beta = job.hosts
    done = job.attach(str(job.pids[0]), at=alpha)
    assert "anks 2 and 3 run on another host" in done.stdout
    assert f"attach {job.pids[0]} --hosts {beta.address}" in done.stdout


def test_kubectl_reaches_pods(job: Job, monkeypatch: pytest.MonkeyPatch) -> None:
    """By a stand-in for kubectl: it lists the hosts as pods, and enters them."""
    folder = job.folder / "bin"
    folder.mkdir()
    kubectl = folder / "kubectl"
    kubectl.write_text(
        "#!/bin/sh\n"
        'case "$*" in\n'
        '"get pods --namespace=team --selector=app=llama "*) printf "pod/alpha\\npod/beta\\n" ;;\n'
        '"get pods"*) ;;\n'
        f'"exec --namespace=team "*) shift 2; host=$1; shift 2; exec {job.rsh.removesuffix(" {host}")} $host "$@" ;;\n'
        f'"debug --namespace=team --image=tools:1 --target=trainer --profile=general --quiet --stdin "*) '
        f'shift 7; host=$1; shift 2; exec {job.rsh.removesuffix(" {host}")} $host "$@" ;;\n'
        '*) echo "unexpected: $*" >&2; exit 1 ;;\nesac\n'
    )
    kubectl.chmod(0o700)
    monkeypatch.setitem(job.environment, "PATH", f"{folder}:{job.environment['PATH']}")
    words = ["--kubectl", "-n", "team", "-l", "app=llama", "--remote-hangdoc", shlex.join(HANGDOC)]
    done = job.attach(*words, "--json")
    assert (done.returncode, done.stderr) == (1, "")
    _is_the_verdict(json.loads(done.stdout))
    # The image of the pods has no hangdoc: another image is run beside it.
    done = job.attach("--kubectl", "-n", "team", "-l", "app=llama", "--remote-hangdoc", "/nowhere/hangdoc")
    assert done.returncode == 3
    assert "--debug-image IMAGE --container NAME" in done.stderr
    done = job.attach(*words, "--debug-image", "tools:1", "-c", "trainer", "--json")
    assert (done.returncode, done.stderr) == (1, "")
    _is_the_verdict(json.loads(done.stdout))
    done = job.attach("--kubectl", "-l", "app=nobody")
    assert done.returncode == 3
    assert "kubectl shows no running pod with app=nobody" in done.stderr
