"""How ranks agree on the rounds of a loop, by its first line."""

from __future__ import annotations

import pytest

from hangdoc.diagnosis.causes.counted import agreed_count


@pytest.mark.parametrize(
    ("loop", "said"),
    [
        ("for batch in loader:", "number of batches"),
        ("for i, batch in enumerate(batch_samples):", "number of batches"),
        ("for attempt in range(self.tries):", "`self.tries`"),
        ("for i, request in enumerate(self.requests()):", "how many items `self.requests()` has"),
        ("for batch in islice(stream(), quota(rank)):", "`quota(rank)`"),
        ("for i in range(3):", "number of rounds"),
        ("for x in what cannot be read…:", "number of rounds"),
    ],
)
def test_advice_fits_what_the_loop_goes_over(loop: str, said: str) -> None:
    assert said in agreed_count(loop)
