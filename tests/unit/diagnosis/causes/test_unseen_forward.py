"""A part of forward() that was left out is told by the values of its caller, and only where all of them are known."""

from __future__ import annotations

import gzip
import json
from typing import Any

import pytest
from cases import case, diagnosed

from hangdoc import api
from hangdoc.model.codec import snapshot_from_bytes
from hangdoc.model.encode import snapshot_to_bytes

FORWARD = "if pictures is not None:"


def _without_pictures(value: Any) -> Any:
    """The document without the locals of that name."""
    if isinstance(value, dict):
        return {key: _without_pictures(each) for key, each in value.items()}
    if isinstance(value, list):
        kept = [each for each in value if not (isinstance(each, dict) and each.get("name") == "pictures")]
        return [_without_pictures(each) for each in kept]
    return value


def test_all_known() -> None:
    document = diagnosed("mixed_modal").document
    assert document["cause"]["code"] == "HD111"
    assert f"forward() goes by `{FORWARD}`" in document["why"]


@pytest.mark.parametrize("hidden", [0, 1])
def test_one_unknown(hidden: int) -> None:
    snapshot = json.loads(gzip.decompress(snapshot_to_bytes(api.load(case("mixed_modal")))))
    whole = snapshot["ranks"][hidden]
    snapshot["ranks"][hidden] = _without_pictures(whole)
    assert snapshot["ranks"][hidden] != whole
    found = api.diagnose(snapshot_from_bytes(gzip.compress(json.dumps(snapshot).encode())))
    assert (found.outcome, found.culprits) == ("hang", (1,))
    assert "came out otherwise" not in found.why
