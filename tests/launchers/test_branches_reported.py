"""What a real job's recorded branches add to its reports: the moment of the condition, and two ranks' tests."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from conftest import Watch
from pythons import CACHE, ROOT, TORCH

from hangdoc import api

PROGRAM = ROOT / "scenarios" / "best_loss.py"
RECORD = "collectives,messages,store,lines,branches"


@pytest.fixture(params=("3.12",))
def python(request: pytest.FixtureRequest) -> Path:
    """With torch, as the tests of other Pythons keep it; of these Pythons 3.13 says the same (``test_tested``)."""
    found = CACHE / f"python{request.param}-torch{TORCH}" / "bin" / "python"
    if not found.exists() or subprocess.run([found, "-c", "import torch"], capture_output=True, check=False).returncode:
        pytest.skip(f"no torch in {found}: python tests/helpers/pythons.py {request.param} makes it")
    return found


def test_a_loss_that_got_no_better_on_two_ranks(python: Path, watch: Watch) -> None:
    done = watch(
        [str(python), *("-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "3"), str(PROGRAM)],
        "--record",
        RECORD,
    )
    assert done.document is not None, done.explain()
    assert (done.status, done.document["culprits"]) == (124, [1]), done.explain()
    moment = {"ranks": [0, 2], "value": "False", "before": 4, "alone": True}
    assert done.document["divergence"]["branch"].get("moment") == moment, done.explain()
    assert "was False the 5th time on ranks 0 and 2 alone" in done.stderr
    table = api.diagnose(api.load(done.snapshots()[-1])).branches
    assert table is not None
    assert (table.ranks, table.call) == ((1, 0), "all_reduce #19")
    first = table.rows[table.first]
    assert first.decides
    assert [cell and (cell.test, cell.value) for cell in first.cells] == [
        *(("loss < self.best", "True"), ("loss < self.best", "False")),
    ]
    assert done.survivors == ()


def test_two_groups_in_another_order_once_on_one_rank(python: Path, watch: Watch) -> None:
    """The condition stands around no call: it has reversed the list that both go through."""
    program = ROOT / "scenarios" / "crossed_groups.py"
    done = watch(
        [str(python), *("-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "3"), str(program)],
        "--record",
        RECORD,
    )
    assert done.document is not None, done.explain()
    assert (done.document["culprits"], done.document["confidence"]) == ([2], "certain"), done.explain()
    branch = done.document["divergence"]["branch"]
    assert branch["condition"] == "if (rank, step) == (2, 4) and not FIXED:", done.explain()
    assert branch["moment"] == {"ranks": [2], "value": "True", "before": 4, "alone": True}, done.explain()
    assert "was True the 5th time on rank 2 alone" in " ".join(done.stderr.split())
    assert done.survivors == ()


@pytest.mark.parametrize("python", ["3.12", "3.13"], indirect=True)
def test_an_exception_that_one_rank_caught(python: Path, watch: Watch) -> None:
    program = ROOT / "scenarios" / "bad_sample.py"
    done = watch(
        [str(python), *("-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "3"), str(program)],
        "--record",
        RECORD,
    )
    assert done.document is not None, done.explain()
    assert (done.status, done.document["culprits"], done.document["confidence"]) == (124, [1], "certain"), (
        done.explain()
    )
    assert done.document["divergence"]["branch"]["condition"] == "except ValueError:", done.explain()
    assert "The ValueError of bad_sample.py:28 decode() led rank 1 past the others' call" in done.document["why"]
    said = [each["text"] for each in done.document["evidence"]]
    assert any(each.startswith("rank 1 alone caught a ValueError at bad_sample.py:35, raised at") for each in said)
    assert done.survivors == ()
