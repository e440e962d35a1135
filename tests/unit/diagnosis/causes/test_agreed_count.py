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
        ("for row in rows[1:]:", "how many items `rows[1:]` has"),
        # What has no length cannot be counted before.
        ("for i, request in enumerate(self.requests()):", "stop with the first that has none left"),
        # Of equally many keys, the ranks' n-th ones differ.
        ("for name, score in sorted(scores.items()):", "go over the same keys"),
        ("for name, score in sorted(scores.items())", "go over the same keys"),
        ("for batch in islice(stream(), quota(rank)):", "`quota(rank)`"),
        ("for i in range(3):", "number of rounds"),
        ("for x in what cannot be read…:", "number of rounds"),
    ],
)
def test_advice_fits_what_the_loop_goes_over(loop: str, said: str) -> None:
    assert said in agreed_count(loop)
