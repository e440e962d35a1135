"""Which of the keys that ranks wait for are in the store."""

from __future__ import annotations

import pytest

from hangdoc.capture.find.awaited_keys import compared


@pytest.mark.parametrize(
    ("awaited", "names", "there", "missing"),
    [
        (["3/0", "3/1"], ["/shards/3/0", "/shards/2/1", "/other"], ("3/0",), ("3/1",)),
        (["x/2"], ["/default_pg/x/0", "/default_pg/x/1", "/max/2"], ("x/0", "x/1"), ("x/2",)),
        (["done1"], ["/undone1", "/done0"], ("done0",), ("done1",)),
        (["ready"], ["/a/ready", "/already"], ("ready",), ()),
        (["a/0"], ["/one/a/1", "/two/a/2"], (), ("a/0",)),  # of which prefix is not known
        (["a/0"], ["/one/a/0", "/two/a/2"], (), ()),  # it may be the one that is there
        (["7"], ["/s/6", "/s/x6"], ("6",), ("7",)),
        (["k"], [], (), ("k",)),
    ],
)
def test_keys_that_are_there_and_missing(
    awaited: list[str], names: list[str], there: tuple[str, ...], missing: tuple[str, ...]
) -> None:
    assert compared(awaited, names) == (there, missing)
