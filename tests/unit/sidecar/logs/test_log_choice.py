from __future__ import annotations

from pathlib import Path

import pytest

from hangdoc.sidecar.logs.choice import Choice, choose

FOLDER = Path("/run/logs")
OURS = {"PYTHONUNBUFFERED": "1", "PET_REDIRECTS": "3", "PET_LOG_DIR": "/run/logs"}


def chosen(line: str, **environment: str) -> Choice:
    return choose(line.split(), environment, FOLDER)


@pytest.mark.parametrize(
    "line",
    [
        "torchrun --nproc-per-node 4 train.py",
        "python train.py",
        "python -m torch.distributed.run -m train --tee 3 --log-dir x",
        "bash start.sh",
        "torchrun --role tee train.py --tee 3 --redirects 1 -r 2 srun",
    ],
)
def test_torchrun_is_told_by_its_variables(line: str) -> None:
    assert chosen(line) == Choice(OURS)


def test_the_users_buffering_stays() -> None:
    assert "PYTHONUNBUFFERED" not in chosen("python train.py", PYTHONUNBUFFERED="").variables


@pytest.mark.parametrize(
    ("line", "environment"),
    [
        ("torchrun --tee 3 train.py", {}),
        ("torchrun --te=0:3,1:3 train.py", {}),
        ("torchrun -t3 train.py", {}),
        ("python -m torch.distributed.run -t 3 train.py", {}),
        ("bash start.sh", {"PET_TEE": "3"}),
    ],
)
def test_tee_wins(line: str, environment: dict[str, str]) -> None:
    found = chosen(line, **environment)
    assert not found.by_rank
    assert found.variables == {"PYTHONUNBUFFERED": "1", "PET_LOG_DIR": "/run/logs"}
    assert "--tee" in found.notes[0]


@pytest.mark.parametrize(
    ("line", "environment"),
    [
        ("torchrun --log-dir=/mine train.py", {}),
        ("torchrun --log_dir /mine train.py", {"PET_LOG_DIR": "/other"}),
        ("torchrun train.py", {"PET_LOG_DIR": "/mine"}),
    ],
)
def test_the_users_folder_wins(line: str, environment: dict[str, str]) -> None:
    found = chosen(line, **environment)
    assert found.elsewhere
    assert "PET_LOG_DIR" not in found.variables
    assert found.variables["PET_REDIRECTS"] == "3"
    assert "/mine" in found.notes[0]


@pytest.mark.parametrize(
    ("line", "environment"),
    [("torchrun --redirects 1 train.py", {}), ("torchrun -r 1 train.py", {}), ("t", {"PET_REDIRECTS": "1"})],
)
def test_the_users_redirects_win(line: str, environment: dict[str, str]) -> None:
    found = chosen(line, **environment)
    assert "PET_REDIRECTS" not in found.variables
    assert "--redirects 1" in found.notes[0]


def test_only_the_ranks_that_the_user_wants_to_see() -> None:
    assert chosen("torchrun --local-ranks-filter 0,2 train.py").only == {0, 2}


@pytest.mark.parametrize("line", ["srun python train.py", "/usr/bin/mpirun -n 4 python train.py", "ssh host torchrun"])
def test_other_hosts_are_told_nothing(line: str) -> None:
    found = chosen(line)
    assert not found.by_rank
    assert found.variables == {"PYTHONUNBUFFERED": "1"}
    assert found.notes


def test_a_script_in_a_job_on_many_hosts_may_call_srun() -> None:
    assert not chosen("bash start.sh", SLURM_NNODES="2").by_rank
    assert "PET_LOG_DIR" not in chosen("bash start.sh", SLURM_NNODES="2").variables
    assert chosen("torchrun train.py", SLURM_NNODES="2").variables == OURS
    assert chosen("bash start.sh", SLURM_NNODES="1").variables == OURS


def test_accelerate_needs_a_folder_of_the_users() -> None:
    assert not chosen("accelerate launch train.py").by_rank
    assert "PET_REDIRECTS" not in chosen("accelerate launch train.py").variables
    found = chosen("accelerate launch --log_dir mine train.py")
    assert found.elsewhere
    assert found.variables["PET_REDIRECTS"] == "3"
