"""``hangdoc attach --save``: one file for somebody else, without secrets, that gives the same verdict."""

from __future__ import annotations

import gzip
import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from conftest import MARK, end_all
from standing_still import wait_until_still

from hangdoc.api import load
from hangdoc.capture.inject.gdb import find_gdb
from hangdoc.capture.read import procfs

# Every place that a secret may come from carries its own.
PROGRAM = """\
import importlib, os, sys, time
import torch
import torch.distributed as dist

import helping
importlib.import_module("named." + "plugin")
API_KEY = "secret-constant"

def train(password, settings):
    # secret-comment
    token = os.environ["SERVICE_TOKEN"]
    note = f"{password} and secret-fstring {token}"
    open(sys.argv[1], "w").close()
    if dist.get_rank() == 1:
        dist.barrier()
    dist.all_reduce(torch.ones(2))
    return note

print("using api_key=secret-logged", flush=True)
dist.init_process_group("gloo")
train("secret-argument", {"key": "secret-item", "lr": 0.1})
"""

# What no thread is in, and the job has imported; the second by a name that no import tells.
HELPERS = {
    "helping.py": 'def offer(store):\n    store.set("ready/a", "secret-value of it")  # secret-remark\n',
    "named/plugin.py": "def wait(store):\n    store.get('ready/a')\n",
}


@pytest.fixture(scope="module")
def job(tmp_path_factory: pytest.TempPathFactory) -> Iterator[subprocess.Popen[bytes]]:
    folder = tmp_path_factory.mktemp("job")
    script = folder / "train.py"
    script.write_text(PROGRAM)
    for name, text in HELPERS.items():
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text(text)
    mark = f"save-{os.getpid()}-{time.monotonic_ns()}"
    environment = {**os.environ, MARK: mark, "OMP_NUM_THREADS": "1", "SERVICE_TOKEN": "secret-variable"}
    line = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"]
    line += ["--redirects=3", f"--log-dir={folder / 'logs'}", str(script), str(folder / "ready")]
    line += ["--wandb-token", "secret-option", "--url=https://me:secret-url@host/"]
    process = subprocess.Popen(
        line, env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    try:
        deadline = time.monotonic() + 200
        while not (folder / "ready").exists():
            assert process.poll() is None
            assert time.monotonic() < deadline
            time.sleep(0.1)
        wait_until_still(procfs.descendants(process.pid, procfs.table()))
        yield process
    finally:
        end_all(mark)
        process.wait(20)


def hangdoc(*arguments: str) -> subprocess.CompletedProcess[str]:
    line = [sys.executable, "-m", "hangdoc", *arguments]
    environment = {name: value for name, value in os.environ.items() if not name.startswith("HANGDOC_")}
    return subprocess.run(line, env=environment, cwd="/", capture_output=True, text=True, timeout=60)


@pytest.mark.parametrize("options", [(), ("--no-source",)])
def test_a_saved_job_tells_the_same_and_no_secret(
    job: subprocess.Popen[bytes], tmp_path: Path, options: tuple[str, ...]
) -> None:
    saved, report = tmp_path / "job.hangdoc", tmp_path / "report.txt"
    live = hangdoc("attach", str(job.pid), "--json", "--save", str(saved), "--report", str(report), *options)
    assert live.returncode == 1, live.stderr
    document = json.loads(live.stdout)
    assert (document["outcome"], document["culprits"]) == ("hang", [1])
    again = hangdoc("diagnose", str(saved), "--json")
    assert (again.returncode, json.loads(again.stdout)) == (1, document)
    held = gzip.decompress(saved.read_bytes()).decode()
    for text in (held, live.stdout, report.read_text()):
        assert "secret-" not in text
    assert saved.stat().st_mode & 0o777 == 0o600
    assert ("def train" in held) == (not options)
    assert "using api_key=" in held  # the log was read
    modules = {Path(module.file).name: module for module in load(saved).modules}
    assert set(modules) == (set() if options else {"train.py", "helping.py", "plugin.py"})
    if modules:
        offer, wait = (modules[name].text.split("\n") for name in ("helping.py", "plugin.py"))
        assert (offer[0], len(offer), wait[0], len(wait)) == ("def offer(store):", 3, "def wait(store):", 3)
        key = re.search("…[0-9a-f]{8}", offer[1])
        assert key is not None and f"store.get('{key[0]}')" in wait[1]


@pytest.mark.skipif(find_gdb() is None, reason="gdb is not installed")
def test_the_advice_of_an_attach_without_history_works(job: subprocess.Popen[bytes]) -> None:
    # The job may only just have come to its barrier: what still moves is refused.
    deadline = time.monotonic() + 30
    while True:
        done = hangdoc("attach", str(job.pid), "--json")
        notes = [item for item in json.loads(done.stdout)["unavailable"] if item["what"] == "journal"]
        advised = [re.search(r"`\S*hangdoc (attach \d+ --inject)`", note["remedy"]) for note in notes]
        if all(advised) or time.monotonic() > deadline:
            break
    assert len(notes) == 2, notes
    lines = {found.group(1) for found in advised if found}
    assert lines == {f"attach {job.pid} --inject"}, notes
    injected = json.loads(hangdoc(*lines.pop().split(), "--json").stdout)
    assert [item for item in injected["unavailable"] if item["what"] == "journal"] == []
