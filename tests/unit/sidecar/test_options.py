"""What `--meet` takes."""

from __future__ import annotations

from pathlib import Path

import pytest

from hangdoc.errors import UsageError
from hangdoc.sidecar.options import check_meet, endpoint


@pytest.mark.parametrize(
    ("meet", "found"),
    [
        ("node0:29600", ("node0", 29600)),
        ("10.0.0.1:1", ("10.0.0.1", 1)),
        ("[fe80::1]:29600", ("fe80::1", 29600)),
        ("node0:0", None),
        ("node0:65536", None),
        ("node0", None),
        ("/shared/a:1", None),
        ("auto", None),
    ],
)
def test_endpoint(meet: str, found: tuple[str, int] | None) -> None:
    assert endpoint(meet) == found


def test_what_names_no_way_to_meet_is_refused(tmp_path: Path) -> None:
    for meet in ("auto", "off", "node0:29600", str(tmp_path)):
        check_meet(meet)
    for meet in ("", "on", str(tmp_path / "missing"), "node0:99999"):
        with pytest.raises(UsageError, match="no HOST:PORT"):
            check_meet(meet)
