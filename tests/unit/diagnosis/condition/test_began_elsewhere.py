"""A loop over a loader that went on longer on a rank: did it begin elsewhere, as a count of its rounds shows?"""

from __future__ import annotations

import pytest
from made_calls import FILE, Made, made_calls

from hangdoc.diagnosis import diagnose
from hangdoc.model.diagnosis import Diagnosis
from hangdoc.model.journal import Attribute

FIT = """
def fit(self):
    {begin}
    for batch in {over}:
        dist.all_reduce(x)
        {count}; n += 1
    dist.barrier()

def restore(self, loader):
    if not self.path.exists():
        return 0
    state = torch.load(self.path)
    loader.load_state_dict(state["loader"])
    return state["step"]
"""
REDUCE: Made = ("all_reduce", [(4, "fit"), (30, "main")])
BARRIER: Made = ("barrier", [(6, "fit"), (30, "main")])
CALLS = {rank: [REDUCE] * (4 if rank == 2 else 3) + [BARRIER] * (rank != 2) for rank in range(3)}


def fitted(
    *,
    begin: str = "self.step = self.restore(self.loader)",
    over: str = "self.loader",
    count: str = "self.step += 1",
    steps: tuple[int, ...] = (14, 14, 3),
) -> Diagnosis:
    at = {0: 6, 1: 6, 2: 4}
    own = {r: [Attribute(FILE, at[r], "fit", "step", str(value), "self")] for r, value in enumerate(steps)}
    values = {rank: {"fit": {"n": "3"}} for rank in range(3)}
    found = diagnose(made_calls(FIT.format(begin=begin, over=over, count=count), CALLS, values, attributes=own))
    assert found.cause is not None
    assert found.cause.code == "HD102"
    assert found.culprits == (2,)
    assert found.divergence is not None
    assert found.divergence.branch is not None
    return found


@pytest.mark.parametrize(
    "changed",
    [
        {"steps": (3, 3, 3)},
        {"steps": (4, 4, 2)},
        {"steps": ()},
        {"count": "self.step += batch.done"},
        {"begin": "self.step = 0"},
        {"begin": "self.step = self.restore(self.model)"},
    ],
)
def test_else_the_loop_itself_parts_them(changed: dict[str, str]) -> None:
    found = fitted(**changed)  # type: ignore[arg-type]
    assert found.divergence is not None
    assert found.divergence.branch is not None
    assert found.divergence.branch.condition == "for batch in self.loader:"
