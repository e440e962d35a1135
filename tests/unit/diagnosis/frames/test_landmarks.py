"""What libraries do for the user's line, in plain words; and where a call of theirs comes from."""

from __future__ import annotations

from dataclasses import replace

import pytest

from hangdoc.diagnosis.frames.landmarks import (
    Role,
    advice,
    has_role,
    is_implicit,
    is_within_reduction,
    landmark,
    library_call,
    words,
)
from hangdoc.diagnosis.frames.stacks import call_site, lines_of, site_of
from hangdoc.diagnosis.state.process import kind_mark
from hangdoc.model.process import Frame, Stack

SITE = "/env/lib/python3.11/site-packages/"
C10D = "torch/distributed/distributed_c10d.py"


def stack(*library: tuple[str, str]) -> Stack:
    """A stack of one user line and, outermost first as one reads them, the library frames below it."""
    frames = [Frame("/job/train.py", 7, "main")]
    frames += [Frame(file if file.startswith("/") else SITE + file, 1, function) for file, function in library]
    return tuple(reversed(frames))


@pytest.mark.parametrize(
    ("frames", "said", "implicit"),
    [
        ([(C10D, "all_reduce")], None, False),
        ([("torch/distributed/_functional_collectives.py", "all_reduce")], None, False),
        ([("/env/lib/python3.11/contextlib.py", "__exit__"), (C10D, "_coalescing_manager")], None, False),
        ([("accelerate/accelerator.py", "gather"), (C10D, "all_gather")], None, False),
        ([("some_library/metrics.py", "report"), (C10D, "all_gather")], None, True),
        ([("torch/_tensor.py", "backward"), ("torch/autograd/graph.py", "_engine_run_backward")],
         "backward() synchronizes gradients", True),
        ([("torch/autograd/graph.py", "_engine_run_backward"),
          ("torch/distributed/fsdp/_fully_shard/_fsdp_collectives.py", "foreach_all_gather"), (C10D, "all_gather")],
         "FSDP gathers parameters in backward()", True),
        ([("torch/distributed/tensor/_api.py", "DTensor.full_tensor"),
          ("torch/distributed/tensor/_redistribute.py", "redistribute_local_tensor"),
          ("torch/distributed/_functional_collectives.py", "all_gather_tensor")],
         "DTensor.full_tensor() brings the shards together", True),
        ([("transformers/trainer.py", "Trainer.evaluate"), ("transformers/trainer.py", "Trainer.evaluation_loop"),
          ("accelerate/accelerator.py", "Accelerator.gather_for_metrics"), (C10D, "all_gather")],
         "Trainer.evaluate() gathers losses and predictions", True),
    ],
)  # fmt: skip
def test_a_call_in_plain_words(frames: list[tuple[str, str]], said: str | None, implicit: bool) -> None:
    assert words(stack(*frames)) == said
    assert is_implicit(stack(*frames)) is implicit


def test_advice_is_of_the_library_that_the_user_called() -> None:
    evaluate = [("transformers/trainer.py", "Trainer.evaluate")]
    forward = [("torch/nn/parallel/distributed.py", "DistributedDataParallel._sync_buffers")]
    assert "print on one" in advice(stack(*evaluate, *forward))
    assert "broadcast_buffers" in advice(stack(*forward))
    assert advice(stack((C10D, "barrier"))) == ""


def test_what_has_been_compiled_runs_and_does_not_compile() -> None:
    running = stack(("torch/_dynamo/eval_frame.py", "compile_wrapper"), ("torch/_inductor/output_code.py", "__call__"))
    compiling = stack(("torch/_dynamo/convert_frame.py", "__call__"), ("torch/_inductor/compile_fx.py", "compile_fx"))
    assert kind_mark(running) is None
    mark = kind_mark(compiling)
    assert mark is not None
    assert mark.kind == "compiling"


def test_a_path_of_the_user_is_no_landmark() -> None:
    assert landmark(Frame("/job/torchmetrics/accuracy.py", 1, "compute")) is None


def test_a_loop_within_the_reduction_of_gradients_and_one_around_it() -> None:
    frames = stack(
        ("some_library/trainer.py", "fit"),
        ("deepspeed/runtime/engine.py", "DeepSpeedEngine.allreduce_gradients"),
        ("deepspeed/runtime/buckets.py", "each_bucket"),
        (C10D, "all_reduce"),
    )
    assert is_within_reduction(frames, SITE + "deepspeed/runtime/buckets.py", 1)
    assert not is_within_reduction(frames, SITE + "some_library/trainer.py", 1)


def test_calls_of_one_user_line_differ_by_their_way_through_the_library() -> None:
    log = stack(("lightning/pytorch/trainer/trainer.py", "Trainer.fit"), ("lightning/pytorch/core.py", "log"))
    other = stack(("lightning/pytorch/trainer/trainer.py", "fit"), ("lightning/pytorch/loops.py", "advance"))
    assert site_of(log) == site_of(other)
    assert call_site(log) != call_site(other)
    assert lines_of(call_site(log)) == site_of(log) == lines_of(site_of(log))


def test_other_lines_of_the_library_are_the_same_site() -> None:
    """One rank may come through another line of a function, or through code that was generated for it."""
    frames = stack(("library/core.py", "Loop.run"), (C10D, "all_reduce"))
    elsewhere = (frames[0], Frame("<eval_with_key>.3", 4, "forward"), replace(frames[1], line=99), frames[2])
    assert call_site(frames) == call_site(elsewhere)


def test_a_call_without_a_user_line_is_told_by_its_innermost_frames() -> None:
    frames = stack((C10D, "all_reduce"))[:-1]
    assert call_site(frames) == site_of(frames)


@pytest.mark.parametrize(
    ("frames", "named"),
    [
        ([("some_library/metrics.py", "report"), (C10D, "all_gather")], "some_library's report()"),
        ([("torch/nn/modules/module.py", "_call_impl"), ("megatron/core/x.py", "forward"), (C10D, "all_reduce")],
         "megatron's forward()"),
        ([("/env/lib/python3.11/contextlib.py", "inner"), ("some_library/a.py", "save"), (C10D, "barrier")],
         "some_library's save()"),
        ([(C10D, "all_reduce")], ""),
    ],
)  # fmt: skip
def test_the_library_call_that_the_users_line_is_in(frames: list[tuple[str, str]], named: str) -> None:
    assert library_call(stack(*frames)) == named


def test_a_call_that_hands_on_is_no_library_call_of_its_own() -> None:
    handed_on = [("deepspeed/comm/comm.py", "log_wrapper"), ("deepspeed/comm/comm.py", "all_reduce")]
    assert not is_implicit(stack(*handed_on, ("deepspeed/comm/torch.py", "all_reduce"), (C10D, "all_reduce")))


@pytest.mark.parametrize(
    ("frames", "asked_for"),
    [
        ([("torch/distributed/device_mesh.py", "init_device_mesh"), (C10D, "new_group")], True),
        ([("monai/metrics/metric.py", "_sync"), (C10D, "new_group")], False),
        ([(C10D, "new_group")], False),
    ],
)
def test_who_makes_groups_on_purpose(frames: list[tuple[str, str]], asked_for: bool) -> None:
    assert has_role(stack(*frames), Role.GROUPS) is asked_for
