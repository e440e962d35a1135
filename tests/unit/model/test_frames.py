from __future__ import annotations

import pytest

from hangdoc.model.frames import is_library_file, is_third_party, own_frames, user_frames
from hangdoc.model.process import Frame


@pytest.mark.parametrize(
    "path",
    [
        "/opt/venv/lib/python3.11/site-packages/torch/distributed/distributed_c10d.py",
        "/usr/lib/python3/dist-packages/numpy/core/_methods.py",
        "/opt/conda/lib/python3.12/threading.py",
        "/usr/lib64/python3.9/subprocess.py",
        "/opt/py/lib/python3.13t/threading.py",
        "/usr/lib/python311.zip/runpy.py",
        "<frozen runpy>",
        "<frozen importlib._bootstrap>",
        "<eval_with_key>.12",
        "/tmp/torchinductor_me/ab/cabxyz.py",
        "/data/cache/4x/c4xgmntecl6d3l7etiuekuivkcww3oxenbupbqnainalnuz3tix3.py",
        "/x/hangdoc/probe/hangdoc_probe.py",
        "",
    ],
)
def test_library(path: str) -> None:
    assert is_library_file(path)


@pytest.mark.parametrize(
    "path",
    [
        "/home/me/train.py",
        "train.py",
        "<string>",
        "<stdin>",
        "<ipython-input-3-abc>",
        "/home/me/lib/pythonic/train.py",
        "/home/me/site-packages-notes/train.py",
        "/home/me/hangdoc/scenarios/barrier.py",
    ],
)
def test_user(path: str) -> None:
    assert not is_library_file(path)


def test_roots_are_folders_and_not_prefixes() -> None:
    assert is_library_file("/src/pytorch/torch/nn/modules/module.py", ("/src/pytorch/torch",))
    assert not is_library_file("/src/pytorch/torchless.py", ("/src/pytorch/torch",))
    assert not is_library_file("/src/a.py", ("/", ""))


def test_user_frames_keep_their_order() -> None:
    inner = Frame("/opt/lib/python3.11/threading.py", 1, "wait")
    user = Frame("/home/me/train.py", 31, "step")
    main = Frame("<string>", 4, "<module>")
    assert user_frames((inner, user, main)) == (user, main)
    assert user_frames((inner,)) == ()


def test_a_forked_workers_parent_frames_do_not_count() -> None:
    worker = Frame("/home/me/data.py", 3, "__getitem__")
    bootstrap = Frame("/usr/lib/python3.11/multiprocessing/process.py", 314, "BaseProcess._bootstrap")
    parent = Frame("/home/me/train.py", 31, "step")
    assert user_frames((worker, bootstrap, parent)) == (worker,)
    assert user_frames((bootstrap, parent)) == ()


@pytest.mark.parametrize(
    ("file", "expected"),
    [
        ("ignite/engine/engine.py", True),
        ("torch/amp/grad_scaler.py", True),
        ("torch/cuda/amp/grad_scaler.py", True),
        ("torch/distributed/algorithms/model_averaging/averagers.py", True),
        ("torch/distributed/distributed_c10d.py", False),
        ("torch/optim/optimizer.py", False),
    ],
)
def test_of_torch_only_what_decides_by_data(file: str, expected: bool) -> None:
    assert is_third_party(f"/venv/lib/python3.11/site-packages/{file}") == expected


def test_the_probe_s_recorder_is_on_no_stack() -> None:
    """A signal's handler may run in it."""
    handler, judge, own, step = (
        Frame("/job/train.py", 9, "on_signal"),
        Frame("/x/hangdoc/probe/hangdoc_probe_budget.py", 100, "judge"),
        Frame("/x/hangdoc/probe/hangdoc_probe_branches.py", 200, "branch"),
        Frame("/job/train.py", 30, "step"),
    )
    assert own_frames((handler, judge, own, step)) == (handler, step)
    assert own_frames((handler, step)) == (handler, step)
