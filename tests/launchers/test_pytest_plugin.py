"""pytest sessions with ranks that stand still: what the report says, who is ended, and beside which plugins."""

from __future__ import annotations

import os
import re
from importlib import resources
from pathlib import Path
from xml.etree import ElementTree

import inner_pytest
from conftest import TORCH_ABORTS

import hangdoc
from hangdoc.pytest_plugin.job import RunJob

_FAILED = ("failure", "error")

PLAYED = '''
import os, pathlib, subprocess, sys, time
import pytest

NAP = [sys.executable, "-c", "import time; time.sleep(300)"]

def played(count=2):
    """Processes that look like ranks to everybody."""
    env = {**os.environ, "WORLD_SIZE": str(count), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "9"}
    return [subprocess.Popen(NAP, env={**env, "RANK": str(rank)}) for rank in range(count)]
'''

FORKED = """
import multiprocessing, os, socket, subprocess, sys
import pytest
import torch
import torch.distributed as dist

FORK = multiprocessing.get_context("fork")
NAP = [sys.executable, "-c", "import time; time.sleep(300)"]

def work(rank, port, answers):
    dist.init_process_group("gloo", init_method=f"tcp://127.0.0.1:{port}", rank=rank, world_size=2)
    dist.all_reduce(torch.ones(4))
    if rank == 1:
        dist.barrier()  # one too many
    dist.all_reduce(torch.ones(8))
    answers.put(rank)

def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]
"""

OUTSIDE = (
    FORKED
    + '''
@pytest.fixture(scope="session")
def service():
    """A job of the whole session: it stands still by nature."""
    env = {**os.environ, "WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "9"}
    ranks = [subprocess.Popen(NAP, env={**env, "RANK": str(rank)}) for rank in range(2)]
    yield ranks
    assert [rank.poll() for rank in ranks] == [None, None]
    for rank in ranks:
        rank.kill()
        rank.wait()

@pytest.fixture
def bystander():
    process = subprocess.Popen(NAP)
    yield process
    assert process.poll() is None
    process.kill()
    process.wait()

def test_hangs(service, bystander):
    answers, port = FORK.Queue(), free_port()
    ranks = [FORK.Process(target=work, args=(rank, port, answers)) for rank in range(2)]
    for rank in ranks:
        rank.start()
    print("ranks", *[rank.pid for rank in ranks])
    assert {answers.get(), answers.get()} == {0, 1}  # waits for ever, though the ranks end

def test_goes_on(service):
    assert [rank.poll() for rank in service] == [None, None]
'''
)


def test_a_hung_test_is_diagnosed_beside_xdist_and_timeout(tmp_path: Path) -> None:
    # Without a line of its own in the session's report, but with the time-out's and a worker of xdist.
    done = inner_pytest.run(
        tmp_path,
        OUTSIDE,
        *("--hangdoc=4", "--timeout=100", "-n1", "--junitxml=report.xml"),
        plugins=("xdist", "pytest_timeout"),
    )
    assert "1 failed, 1 passed" in done.output, done.output
    # The report: where the test waited, and the diagnosis, 80 cells wide.
    assert "\nFAILED test_it.py::test_hangs - Failed: Rank 1 alone calls barrier at" in done.output
    assert "The test waited at test_it.py:" in done.output
    assert "HD101 collective-on-some-ranks" in done.output
    report = done.output.partition("hangdoc ✖ hang")[2].partition("hangdoc: saved")[0]
    assert max(map(len, report.splitlines())) <= 80
    assert "Timeout" not in done.output
    # Its ranks are gone, its own processes were its own to end.
    found = re.search(r"^ranks (\d+) (\d+)$", done.output, re.MULTILINE)
    assert found is not None
    assert not any(Path(f"/proc/{pid}").exists() for pid in found.groups())
    assert done.survivors == ()
    # JUnit: properties, and the diagnosis in the failure's text.
    case = next(ElementTree.parse(tmp_path / "report.xml").iter("testcase"))
    properties = {each.get("name"): each.get("value") for each in case.iter("property")}
    assert (properties["hangdoc_outcome"], properties["hangdoc_cause"]) == ("hang", "HD101")
    assert properties["hangdoc_culprits"] == "1"
    failure = case.find("failure")
    assert failure is not None and "True on rank 1, False on rank 0" in (failure.text or "")
    saved = hangdoc.diagnose(properties["hangdoc_snapshot"] or "")
    assert (saved.outcome, saved.culprits) == ("hang", (1,))


def test_a_rank_in_pytests_own_process_shows_its_stack_alone_and_that_is_said(tmp_path: Path) -> None:
    # torch is there before any plugin: what is forked has its history all the same.
    source = FORKED + (
        "\ndef test_hangs():\n"
        "    answers, port = FORK.Queue(), free_port()\n"
        "    FORK.Process(target=work, args=(1, port, answers)).start()\n"
        "    work(0, port, answers)\n"
    )
    done = inner_pytest.run(tmp_path, source, "-p", "torch", "--hangdoc=4")
    assert "1 failed" in done.output, done.output
    text = " ".join(done.output.split())
    assert "journal of rank 0: it runs in pytest's own process → Run it in a process of its own." in text
    assert "journal of rank 1" not in text
    assert re.search(r"rank 0 test_it.py:\d+ work\(\) all_reduce", text)
    assert re.search(r"rank 1 test_it.py:\d+ work\(\) barrier", text)
    assert done.survivors == ()


def test_ranks_that_sleep_are_given_up_later_and_each_phase_can_hang(tmp_path: Path) -> None:
    source = PLAYED + (
        "pytestmark = pytest.mark.hangdoc(1, give_up_after=2)\n"
        "@pytest.fixture\n"
        "def hung():\n"
        "    for rank in played():\n"
        "        rank.wait()\n"
        "def test_set_up(hung):\n"
        "    pass\n"
        "def test_swallows():\n"
        "    ranks = played()\n"
        "    try:\n"
        "        ranks[0].wait()\n"
        "    except BaseException:\n"
        "        pass\n"
        "@pytest.mark.hangdoc(1, give_up_after=90)\n"
        "def test_fails_meanwhile(request):\n"
        "    ranks, watched = played(), request.config.pluginmanager.get_plugin('hangdoc-session')\n"
        "    while watched._verdict is None:\n"  # nothing else shows when it has come: the page is written before
        "        watched._receive(1.0)\n"
        "    for rank in ranks:\n"
        "        rank.kill()\n"
        "        rank.wait()\n"
        "    assert not ranks, 'mine'\n"
        "@pytest.mark.hangdoc(0)\n"
        "def test_off():\n"
        "    ranks = played()\n"
        "    time.sleep(5)\n"
        "    assert [rank.poll() for rank in ranks] == [None, None]\n"
        "    for rank in ranks:\n"
        "        rank.kill()\n"
        "        rank.wait()\n"
    )
    # In CI, pytest's summary has whole messages: ours are the sentence of the verdict.
    done = inner_pytest.run(tmp_path, source, "--junitxml=report.xml", env={"CI": "true"})
    assert "2 failed, 1 passed, 1 error" in done.output, done.output
    summary = done.output.partition("short test summary info")[2].splitlines()[1:-1]
    assert len(summary) == 4, "a line for each, and one more of the test's own message"
    assert summary[1].startswith("FAILED test_it.py::test_fails_meanwhile - AssertionError: mine")
    for line, test in ((summary[0], "FAILED test_it.py::test_swallows"), (summary[3], "ERROR test_it.py::test_set_up")):
        assert re.fullmatch(rf"{test} - Failed: [^\n]*[Rr]anks? [^\n]*\.", line), line
    assert done.output.count("The test waited at test_it.py:") == 1
    failed = [each.text or "" for each in ElementTree.parse(tmp_path / "report.xml").iter() if each.tag in _FAILED]
    assert ["hangdoc ✖ hang · 2 ranks" in text for text in failed] == [True, True, False]
    assert done.output.count("hangdoc ✖ hang · 2 ranks") == 2
    # What is known of a job that only waits is shown where the test fails anyhow.
    assert "FAILED test_it.py::test_fails_meanwhile - AssertionError: mine" in done.output
    assert done.output.count("hangdoc ◔ slow · 2 ranks") == 1
    assert done.survivors == ()


def test_a_job_of_the_fixture_is_left_to_its_own_watch(tmp_path: Path) -> None:
    source = PLAYED + (
        "@pytest.mark.hangdoc(1, give_up_after=2)\n"
        "def test_both(hangdoc_job, tmp_path):\n"
        "    script = tmp_path / 'naps.py'\n"
        "    script.write_text('import time; time.sleep(4)')\n"
        "    found = hangdoc_job(script, launch='python', environment={'RANK': '0', 'WORLD_SIZE': '2'})\n"
        "    print('outcome', found.outcome.value)\n"
        "    played()[0].wait()\n"
    )
    done = inner_pytest.run(tmp_path, source, "--hangdoc=1")
    assert "hangdoc: diagnoses and ends a test whose ranks stand still for 1 s" in done.output
    assert "1 failed" in done.output, done.output
    assert "outcome healthy" in done.output
    assert "hangdoc ✖ hang · 2 ranks" in done.output
    assert done.survivors == ()


def test_the_example_of_the_guide(tmp_path: Path) -> None:
    # Its healthy job ends right after a call, where torch itself aborts now and then.
    page = resources.files("hangdoc").joinpath("guide", "pytest.md").read_text(encoding="utf-8")
    example, _ = re.findall(r"^```python\n(.*?)^```", page, re.MULTILINE | re.DOTALL)
    for attempt in range(3):
        (tmp_path / str(attempt)).mkdir()
        done = inner_pytest.run(tmp_path / str(attempt), example, "-rP")
        if TORCH_ABORTS not in done.output:
            break
    assert "2 passed" in done.output, done.output
    # What the job and its watch print is what the tests print.
    assert "Rank 0 alone calls barrier at test_it.py:" in " ".join(done.output.split())
    assert done.survivors == ()


FABRIC = Path(__file__).parents[2] / "scenarios" / "fabric_late_launch.py"


def test_fabric_that_launches_in_a_constructor(hangdoc_job: RunJob, tmp_path: Path) -> None:
    """The constructor looks at the world before it launches: rank 1 starts later, and sees another world."""
    features = tmp_path / "run"
    features.mkdir()
    found = hangdoc_job(FABRIC, launch="python", environment={"RUN_FOLDER": os.fspath(features)})
    assert (found.outcome, found.culprits) == ("hang", (1,))
    assert found.cause is not None and found.cause.code == "HD110"
    assert "Call launch() first" in found.fix
