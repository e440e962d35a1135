"""Did a rank leave a library's loop early, which has planned as many rounds there as anywhere?"""

from __future__ import annotations

import gzip

import pytest
from cases import DATA

from hangdoc import api
from hangdoc.model.codec import snapshot_from_bytes

PER_EPOCH = '"name":"num_update_steps_per_epoch","value":'


@pytest.mark.parametrize(("per_epoch", "cause"), [("20", "HD109"), ("40", "HD102")])
def test_a_round_without_the_call_where_all_were_to_be_made(per_epoch: str, cause: str) -> None:
    """Of 40 steps, in epochs of 20. An epoch of 40 may be that of a stream, whose length nobody knows."""
    text = gzip.decompress(next(DATA.glob("*/step_without_backward.hangdoc")).read_bytes()).decode()
    assert f'{PER_EPOCH}"20"' in text
    found = api.diagnose(snapshot_from_bytes(text.replace(f'{PER_EPOCH}"20"', f'{PER_EPOCH}"{per_epoch}"').encode()))
    assert found.cause is not None and found.cause.code == cause


def test_not_where_a_rank_has_planned_fewer() -> None:
    text = gzip.decompress(next(DATA.glob("*/step_without_backward.hangdoc")).read_bytes()).decode()
    steps = '"name":"max_steps","value":'
    before, found_at, after = text.rpartition(f'{steps}"40"')
    assert found_at
    found = api.diagnose(snapshot_from_bytes(f'{before}{steps}"30"{after}'.encode()))
    assert found.cause is not None and found.cause.code == "HD102"
