"""A job full of secrets: in its arguments, variables, logs, sources and values; and nothing shows one of them."""

from __future__ import annotations

import gzip
import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from conftest import MARK, end_all
from secret_corpus import (
    ARGUMENTS,
    HARMLESS_LINES,
    LINES,
    SOURCE,
    SOURCE_SECRETS,
    VARIABLE_SECRETS,
    VARIABLES,
)
from terminal import DEADLINE, HANGDOC, child_of, environment, wait_until

from hangdoc import api
from hangdoc.diagnosis import diagnose
from hangdoc.model.encode import snapshot_to_bytes
from hangdoc.model.snapshot import LogTail
from hangdoc.sidecar.meeting.records import Verdict, written
from hangdoc.sidecar.meeting.wire import packed

# Two "ranks" without torch, whose stderr goes to files of their own; one ends with an exception.
PROGRAM = f"""
import mmap, os, subprocess, sys, time

# What an attach takes for torch.
mapped = mmap.mmap(os.open("libtorch_cpu.so", os.O_RDONLY), 0, prot=mmap.PROT_READ)

def login(**_):
    pass

def train(rank, wait, mode):
    pw_of_it = 8172635455
{SOURCE.replace("wait()", "pass")}\
    with open("words") as words:
        sys.stderr.write(words.read())
        sys.stderr.flush()
    print("ready", rank, flush=True)
    wait(1000)

if "RANK" not in os.environ:
    line = [sys.executable, *sys.argv]
    ranks = [subprocess.Popen(line, stderr=open(f"log{{n}}", "w"), env={{**os.environ, "RANK": str(n),
             "WORLD_SIZE": "2", "LOCAL_RANK": str(n), "LOCAL_WORLD_SIZE": "2"}}) for n in range(2)]
    sys.exit(max(rank.wait() for rank in ranks))
train(int(os.environ["RANK"]), time.sleep, "train")
"""

# Those that a Python program is not given as its own arguments.
WORDS = [(words, secret) for words, secret in ARGUMENTS if words[0] not in ("mysql", "sshpass", "python")]
ARGV = [word for words, _ in WORDS for word in words]
REMOTE_SECRETS = ["hf_RemoteRemote", *(f"remoteword{number}" for number in range(1, 5))]
SECRETS = [secret for _, secret in (*WORDS, *LINES)] + SOURCE_SECRETS + VARIABLE_SECRETS + ["8172635455"]


@pytest.fixture
def job(tmp_path: Path, mark: str) -> Iterator[subprocess.Popen[bytes]]:
    (tmp_path / "train.py").write_text(PROGRAM)
    (tmp_path / "libtorch_cpu.so").write_bytes(bytes(4096))
    # The last forty lines of a log are kept, and so many characters of each.
    (tmp_path / "words").write_text("\n".join(line for line, _ in LINES) + "\n")
    line = [*HANGDOC, "watch", "--stall-after", "2", "--give-up-after", "3", "--report", "r.json", "--run-dir", "run"]
    with (tmp_path / "out").open("wb") as out, (tmp_path / "err").open("wb") as err:
        process = subprocess.Popen(
            [*line, "--", sys.executable, "train.py", *ARGV],
            env=environment(**{MARK: mark, "OMP_NUM_THREADS": "1"}, **dict(VARIABLES)),
            cwd=tmp_path,
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=err,
            start_new_session=True,
        )
    yield process
    end_all(mark)
    process.kill()
    process.wait(DEADLINE)


def hangdoc(folder: Path, *words: str) -> str:
    line = [*HANGDOC, *words]
    done = subprocess.run(line, env=environment(), cwd=folder, capture_output=True, text=True, timeout=DEADLINE)
    return done.stdout + done.stderr


def captured(folder: Path, pid: int) -> dict[str, str]:
    """What `hangdoc capture` writes to stdout, and what `hangdoc diagnose` tells of two hosts' such files."""
    line = [*HANGDOC, "capture", str(pid)]
    done = subprocess.run(line, env=environment(), cwd=folder, capture_output=True, check=True, timeout=DEADLINE)
    for name in ("a.hangdoc", "b.hangdoc"):
        (folder / name).write_bytes(done.stdout)
    told = hangdoc(folder, "diagnose", "a.hangdoc", "b.hangdoc")
    return {
        "captured": gzip.decompress(done.stdout).decode(),
        "capture": done.stderr.decode(),
        "files of hosts": told,
        "file of a host": hangdoc(folder, "diagnose", "--json", "a.hangdoc"),
    }


def asked_elsewhere(folder: Path, pid: int) -> dict[str, str]:
    """The job as two hosts show it, of which one sends a snapshot that nobody has masked, and one an angry line."""
    (folder / "ask").write_text("""#!/bin/sh
[ "$1" = good ] && exec cat bare.hangdoc
echo 'login hf_RemoteRemoteRemoteRemote failed: password=remoteword1' >&2; exit 9
""")
    (folder / "ask").chmod(0o700)
    bare = api.snapshot(pid)
    bare = replace(
        bare,
        command=("train.py", "--password", "remoteword2"),
        ranks=tuple(
            replace(rank, environment=(*rank.environment, ("NCCL_TOKEN", "remoteword3"))) for rank in bare.ranks
        ),
        log=LogTail("log", ("api_key=remoteword4",)),
    )
    (folder / "bare.hangdoc").write_bytes(snapshot_to_bytes(bare))
    hosts = ["attach", "--rsh", f"{folder}/ask {{host}}"]
    return {
        "asked": hangdoc(folder, *hosts, "--hosts", "good,bad", "--save", "hosts.hangdoc"),
        "of hosts": gzip.decompress((folder / "hosts.hangdoc").read_bytes()).decode(),
        "nobody answers": hangdoc(folder, *hosts, "--hosts", "bad"),
    }


def sent_to_other_watches(pid: int) -> dict[str, str]:
    """What a watch of another host would get of this one: its snapshot, and the lead's verdict."""
    seen = api.snapshot(pid)
    told = diagnose(seen)
    return {
        "on the wire": gzip.decompress(packed(seen, send_sources=True)).decode(),
        "without sources": gzip.decompress(packed(seen, send_sources=False)).decode(),
        "verdict": written(Verdict(1, told.outcome, told.verdict, "a")).decode(),
    }


def test_none_of_the_planted_is_shown(job: subprocess.Popen[bytes], tmp_path: Path) -> None:
    report = tmp_path / "r.json"
    kept = tmp_path / "err"
    wait_until(lambda: report.exists() and "hangdoc: saved. " in kept.read_text(), what="the report and what is kept")
    launcher = child_of(job.pid)
    snapshots = sorted((tmp_path / "run").glob("*.hangdoc"))
    outputs = {
        "watch": (tmp_path / "err").read_text(),
        "report": report.read_text(),
        "kept": "".join(path.read_text() for path in (tmp_path / "run").glob("*.json")),
        "snapshots": "".join(gzip.decompress(path.read_bytes()).decode() for path in snapshots),
        "list": hangdoc(tmp_path, "attach"),
        "attach": hangdoc(tmp_path, "attach", str(launcher)),
        "attached": hangdoc(tmp_path, "attach", "--json", "--save", "mine.hangdoc", str(launcher)),
        "saved": gzip.decompress((tmp_path / "mine.hangdoc").read_bytes()).decode(),
        "diagnose": hangdoc(tmp_path, "diagnose", "run"),
        "error": hangdoc(tmp_path, "diagnose", "password=errorword1"),
        **captured(tmp_path, launcher),
        **asked_elsewhere(tmp_path, launcher),
        **sent_to_other_watches(launcher),
    }
    for secret in (*SECRETS, *REMOTE_SECRETS, "errorword1"):
        assert [name for name, text in outputs.items() if secret in text] == [], secret
    # It was looked at: what is no secret is there.
    assert "watching pid" in outputs["watch"]
    assert "train.py" in outputs["list"]
    for name in ("snapshots", "saved", "captured", "of hosts", "on the wire"):
        assert "wandb: api_key=…  ok" in outputs[name], name
        assert '"NCCL_PASSWORD","…"' in outputs[name].replace(" ", ""), name
        assert "--wandb-key" in outputs[name], name
        assert 'mode == \\"train\\" and rank == 3' in outputs[name], name
        assert "def train" in outputs[name], name
    for name in ("asked", "nobody answers"):
        assert "login … failed: password=…" in outputs[name], name
    assert os.environ.get("NCCL_PASSWORD") is None


def test_the_start_line_stays_readable(tmp_path: Path) -> None:
    line = ["watch", "sh", "-c", "exit 3", "--lr", "1e-3", "--tokenizer", "gpt2", "--token", "abc", "--api-key=def"]
    assert hangdoc(tmp_path, *line).partition(", ")[2] == "sh -c … --lr 1e-3 --tokenizer gpt2 --token … --api-key=…\n"
    assert len(HARMLESS_LINES) >= 30
