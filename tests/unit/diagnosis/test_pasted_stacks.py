"""The verdict on stacks that somebody pasted: one look at each rank, and nothing else.

What the stacks show is said, whose side it is at most likely, and nothing that nobody saw.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import pytest
from cases import case, names
from pasted_stacks import (
    ALL_REDUCE,
    BARRIER,
    LOADER,
    MAIN,
    QUEUE,
    Frames,
    as_json,
    faulthandler,
    job,
    py_spy,
    stacks,
    step,
)

from hangdoc import api
from hangdoc.capture.logs.processes import ranks_of
from hangdoc.diagnosis.verdict import diagnose
from hangdoc.model.diagnosis import Diagnosis
from hangdoc.model.kinds import Confidence, Outcome
from hangdoc.model.process import Process
from hangdoc.model.snapshot import JobSnapshot, RankSnapshot
from hangdoc.report.terminal import render

LOGS = Path(__file__).parents[4] / "shared" / "data" / "logs"
_NEVER_SEEN = re.compile(r"moves|healthy|CPU time|never called|did not call|another host|may not read", re.IGNORECASE)

_FORMATS: dict[str, Callable[[int, Frames], str]] = {
    "txt": lambda rank, frames: py_spy(100 + rank, frames),
    "err": lambda rank, frames: faulthandler(frames, rank),
    "json": lambda rank, frames: as_json(100 + rank, frames),
}


def of(ranks: Sequence[Frames], kind: str = "txt") -> dict[str, str]:
    """One file for each rank."""
    return {f"rank{rank}.{kind}": _FORMATS[kind](rank, [*frames, *MAIN]) for rank, frames in enumerate(ranks)}


def verdict_on(files: Mapping[str, str], source: Path | None = None) -> Diagnosis:
    found = diagnose(job(files, source))
    assert found.outcome == Outcome.HANG
    assert found.confidence != Confidence.CERTAIN
    assert _NEVER_SEEN.search(render(found, width=100, color=False)) is None
    return found


def code(found: Diagnosis) -> str | None:
    return found.cause.code if found.cause is not None else None


IN_STEP: Frames = (*ALL_REDUCE, *step(10))
AT_END: Frames = (*BARRIER, *step(20))


@pytest.mark.parametrize("kind", _FORMATS)
def test_other_lines_give_sides_and_the_few_are_likely_to_blame(kind: str) -> None:
    found = verdict_on(of([IN_STEP, IN_STEP, AT_END, IN_STEP], kind))
    assert (found.culprits, code(found), found.confidence) == ((2,), "HD101", Confidence.LIKELY)
    assert "train.py:10" in found.verdict
    assert "train.py:20" in found.verdict


def test_of_two_ranks_both_are_named() -> None:
    found = verdict_on(of([IN_STEP, AT_END]))
    assert {*found.culprits, *(rank for side in found.alternatives for rank in side)} == {0, 1}
    assert found.confidence == Confidence.POSSIBLE


@pytest.mark.parametrize("kind", _FORMATS)
@pytest.mark.parametrize(("wait", "expected"), [(QUEUE, "HD505"), (LOADER, "HD503")])
def test_a_rank_outside_of_all_calls_holds_up_those_in_one(kind: str, wait: Frames, expected: str) -> None:
    found = verdict_on(of([IN_STEP, (*wait, *step(33, "load")), IN_STEP], kind))
    assert (found.culprits, code(found), found.confidence) == ((1,), expected, Confidence.LIKELY)
    assert "train.py:33" in found.verdict


def test_a_main_thread_alone_does_not_show_that_no_other_is_left() -> None:
    frames: list[Frames] = [IN_STEP, (*QUEUE, *step(33, "load")), IN_STEP]
    alone = {f"rank{r}.txt": py_spy(100 + r, [*each, *MAIN], alone=True) for r, each in enumerate(frames)}
    assert "is left" in verdict_on(of(frames)).why
    found = verdict_on(alone)
    assert found.culprits == (1,)
    assert "is left" not in found.why


def test_ranks_that_ran_in_a_call_wait_in_it() -> None:
    busy = {f"rank{r}.txt": py_spy(r + 5, [*(AT_END if r else IN_STEP), *MAIN], "active") for r in range(3)}
    assert verdict_on(busy).culprits == (0,)


@pytest.mark.parametrize("status", ["active", "active+gil", ""])
def test_a_rank_that_may_wait_for_its_device_is_no_more_than_possible(status: str) -> None:
    files = of([IN_STEP, IN_STEP, IN_STEP], "txt" if status else "err")
    frames = [*step(40), *MAIN]
    files |= {"rank1.txt": py_spy(101, frames, status)} if status else {"rank1.err": faulthandler(frames, 1)}
    found = verdict_on(files)
    assert found.confidence == Confidence.POSSIBLE
    assert (0, 2) in (found.culprits, *found.alternatives)


def test_where_no_rank_is_seen_in_a_call_nobody_is_said_to_wait_for_nobody() -> None:
    files = {f"rank{r}.txt": py_spy(r + 5, [*step(40), *MAIN], "active") for r in (0, 2)}
    found = verdict_on({**files, "rank1.txt": py_spy(6, [*QUEUE, *step(33), *MAIN])})
    assert (found.culprits, found.confidence) == ((), Confidence.POSSIBLE)
    assert "No rank waits" not in found.verdict
    assert "train.py:33" in found.verdict


def test_all_in_one_call_is_said_of_those_that_are_here_and_no_more() -> None:
    found = verdict_on(of([IN_STEP, IN_STEP, IN_STEP]))
    assert (found.culprits, code(found), found.confidence) == ((), None, Confidence.POSSIBLE)
    assert "All ranks" not in found.verdict
    assert "a rank whose stack is not here may be missing" in found.why.lower()
    whole = {f"rank{r}.txt": "WORLD_SIZE=3\n" + py_spy(r + 5, [*IN_STEP, *MAIN]) for r in range(3)}
    assert "not here" not in verdict_on(whole).why


def test_one_rank_names_no_other_and_asks_for_them() -> None:
    for text in (py_spy(4711, [*IN_STEP, *MAIN]), "RANK=6 WORLD_SIZE=8\n" + faulthandler([*IN_STEP, *MAIN])):
        found = verdict_on({"stack.txt": text})
        assert (found.culprits, found.alternatives, found.confidence) == ((), (), Confidence.POSSIBLE)
        assert "all_reduce" in found.verdict
        assert "py-spy dump" in found.fix


def test_one_rank_outside_of_all_calls_is_not_blamed_either() -> None:
    found = verdict_on({"rank3.txt": py_spy(9, [*QUEUE, *step(33), *MAIN])})
    assert (found.culprits, found.alternatives) == ((), ())
    assert "train.py:33" in found.verdict


def test_a_call_in_a_thread_of_autograds_counts() -> None:
    backward: Frames = (("_engine_run_backward", "torch/autograd/graph.py", 825), *step(12, "backward"), *MAIN)
    hook: Frames = (*ALL_REDUCE, ("grad_hook", "hooks.py", 58))
    files = {f"rank{r}.err": faulthandler(backward, r, others=[hook]) for r in range(3)}
    files["rank3.err"] = faulthandler([*AT_END, *MAIN], 3)
    found = verdict_on(files)
    assert found.culprits == (3,)
    assert "hooks.py:58" in found.verdict


def test_missing_stacks_are_named_and_nobody_is_blamed_for_them() -> None:
    files = {f"rank{r}.txt": "WORLD_SIZE=4\n" + py_spy(r + 5, [*IN_STEP, *MAIN]) for r in range(3)}
    found = verdict_on(files)
    assert found.culprits == ()
    assert "The stack of rank 3 is not here" in found.verdict


def test_ranks_that_the_stacks_do_not_tell_are_told_by_their_pids() -> None:
    text = "".join(py_spy(1000 + r, [*(AT_END if r == 2 else IN_STEP), *MAIN]) for r in range(4))
    found = verdict_on({"host.txt": text})
    assert found.culprits == (2,)
    assert "rank 2 is process 1002" in found.verdict


def test_native_frames_tell_a_wait_for_the_device() -> None:
    device: Frames = (("cuStreamSynchronize", "libcuda.so.1", 0), *step(40))
    files = {f"rank{r}.txt": py_spy(r + 5, [*device, *MAIN], "active") for r in range(2)}
    found = verdict_on(files)
    assert found.culprits == ()
    assert "a call on the device" in found.verdict


def test_the_branch_above_the_line_is_found_in_a_copy_of_the_source(tmp_path: Path) -> None:
    lines = [""] * 60
    lines[0] = "def step():"
    lines[7] = "    if cache.is_warm:"
    lines[9] = "        dist.all_reduce(x)"
    lines[19] = "    dist.barrier()"
    lines[48:50] = ["def main():", "    step()"]
    lines[59] = "main()"
    (tmp_path / "train.py").write_text("\n".join(lines) + "\n")
    for kind in _FORMATS:
        found = verdict_on(of([IN_STEP, IN_STEP, AT_END, IN_STEP], kind), tmp_path)
        assert found.culprits == (2,)
        assert "cache.is_warm" in f"{found.why} {found.code} {found.divergence}", kind


@pytest.mark.parametrize("kind", _FORMATS)
def test_sixty_columns(kind: str) -> None:
    for ranks in ([IN_STEP, AT_END], [IN_STEP], [IN_STEP, (*QUEUE, *step(33)), IN_STEP], [IN_STEP, IN_STEP]):
        text = render(diagnose(job(of(ranks, kind))), width=60, color=False)
        assert max(map(len, text.splitlines())) <= 60
        assert "\x1b" not in text


def test_control_characters_of_a_stack_do_not_reach_the_terminal() -> None:
    frames = [*ALL_REDUCE, ("st\x1b]0;own\x07ep", "tr\x1b[2Jain.py", 10), *MAIN]
    found = verdict_on({"rank0.txt": py_spy(1, frames), "rank1.txt": py_spy(2, [*AT_END, *MAIN])})
    assert "\x1b" not in str(found)
    assert "\x07" not in str(found)


# --- what attach saw, printed by py-spy, and read back ---------------------------------------------------------------


def _printed(rank: RankSnapshot, process: Process) -> str:
    """What `py-spy dump` prints of the process."""
    assert process.last is not None
    text = f"rank {rank.rank}\nProcess {process.pid}: python\nPython v3.11.9 (/usr/bin/python3)\n\n"
    for thread in process.last.threads:
        if thread.frames:
            text += f'Thread {thread.tid} ({"active" if thread.state == "R" else "idle"}): "{thread.name}"\n'
            text += "".join(f"    {frame.function} ({frame.file}:{frame.line})\n" for frame in thread.frames)
    return text


def _as_pasted(saved: JobSnapshot) -> JobSnapshot:
    """The same job, of which somebody has pasted the stacks alone."""
    texts = [_printed(rank, rank.process) for rank in saved.ranks if rank.process is not None]
    seen = ranks_of(stacks({"stacks.txt": "\n".join(texts)}))
    return JobSnapshot(
        taken=0.0,
        mode="log",
        world_size=saved.world_size,
        ranks=seen.ranks,
        sources=saved.sources,
        library_roots=saved.library_roots,
    )


def test_what_attach_saw_is_seen_in_a_paste_as_well_and_never_for_certain() -> None:
    likely = agreed = 0
    for saved in (api.load(case(name)) for name in names()[::12]):
        if saved.ended or not saved.ranks or not all(r.process is not None and r.process.looks for r in saved.ranks):
            continue  # nobody could paste its stacks
        known = api.diagnose(saved)
        if known.outcome != Outcome.HANG:
            continue
        found = diagnose(_as_pasted(saved))
        assert found.outcome == Outcome.HANG
        assert found.confidence != Confidence.CERTAIN
        likely += found.confidence == Confidence.LIKELY
        agreed += found.confidence == Confidence.LIKELY and found.culprits == known.culprits
    # Calls, their numbers and groups, values of variables, sockets and locks are not in a paste.
    assert likely > 20
    assert agreed >= 0.85 * likely


# --- the handed cases ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "culprits", "codes", "said"),
    [
        ("pyspy-early-return", (2,), {"HD101"}, ["cache_pool.py:207", "channel.py:166"]),
        ("pyspy-json-loader", (1,), {"HD503", "HD505"}, ["prefetch.py:118", "loop.py:88"]),
        ("faulthandler-one-rank", (), {None}, ["partition.py:377", "reduce_scatter"]),
    ],
)
def test_handed(name: str, culprits: tuple[int, ...], codes: set[str | None], said: list[str]) -> None:
    folder = LOGS / name / "input"
    if not folder.is_dir():
        pytest.skip("the handed logs are not here")
    found = verdict_on({path.name: path.read_text() for path in sorted(folder.iterdir())})
    assert found.culprits == culprits
    assert code(found) in codes
    assert all(text in str(found) for text in said)
