"""Which lines of a log tell of errors?"""

from __future__ import annotations

from hangdoc.model.told_errors import told_errors


def test_a_sentence_with_a_number_of_failures_is_no_error() -> None:
    assert list(told_errors(["rank 3: 0 of 12 samples failed the filter"])) == []
    line = "rank 3: [Errno 122] Disk quota exceeded"
    assert list(told_errors([line])) == [line]


def test_a_long_line_is_cut_before_it_is_searched() -> None:
    found = list(told_errors(["ERROR " + "rank 1 " * 100_000, "x" * 100_000 + " ERROR"]))
    assert [len(each) for each in found] == [400]
