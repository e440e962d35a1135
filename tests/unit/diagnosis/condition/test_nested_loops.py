"""Of two loops around one call, the outer one may have ended, or the inner one been left early."""

from __future__ import annotations

from made_calls import Made, made_calls

from hangdoc.diagnosis import diagnose
from hangdoc.model.diagnosis import Diagnosis
from hangdoc.model.kinds import Confidence

DECODE = """
class Batch:
    def __init__(self, prompts):
        self.prompts = prompts

    def run(self):
        for prompt in self.prompts:
            while len(prompt) < self.longest:
                dist.all_reduce(x)
                if draw() in self.stops:
                    {way}
        dist.barrier()


def main():
    Batch({prompts}).run()
"""
REDUCE: Made = ("all_reduce", [(8, "run"), (15, "main")])
BARRIER: Made = ("barrier", [(11, "run"), (15, "main")])


def diagnosed(prompts: str, way: str = "break") -> Diagnosis:
    calls = {rank: [REDUCE] * (3 if rank == 2 else 4) + [BARRIER] * (rank == 2) for rank in range(4)}
    found = diagnose(made_calls(DECODE.format(prompts=prompts, way=way), calls, {}))
    assert found.cause is not None
    assert (found.cause.code, found.culprits) == ("HD102", (2,))
    return found


def conditions(found: Diagnosis) -> list[str]:
    assert found.divergence is not None
    branch = found.divergence.branch
    return [branch.condition, *(each.condition for each in branch.answers)] if branch is not None else []


def test_what_leaves_both_loops_is_no_story_of_its_own() -> None:
    assert "within it" not in diagnosed("mine(rank)", "return").why


def test_of_two_loops_it_is_open_which_one_ended() -> None:
    for prompts in ("[[1], [2]]", "mine(rank)"):
        assert diagnosed(prompts).confidence == Confidence.LIKELY
