"""What the tests of the diagnosis read from dumps is no test of how they are read."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from forked_workers import forked_workers


@pytest.fixture(scope="module", autouse=True)
def workers_are_forked() -> Iterator[None]:
    with forked_workers():
        yield
