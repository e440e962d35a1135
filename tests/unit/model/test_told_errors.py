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


def test_the_value_of_a_metric_is_no_error_but_after_a_traceback() -> None:
    assert list(told_errors(["MeanSquaredError: 0.0123", "ERROR: 0.12", "error: 0.4", "loss_error=3"])) == []
    raised = ["Traceback (most recent call last):", '  File "a.py", line 3, in run', "KeyError: 3"]
    assert list(told_errors(raised)) == ["KeyError: 3"]


def test_lines_of_ranks_that_share_a_file_are_not_joined() -> None:
    lines = [
        "[default1]:[rank1]: Exception in thread stats (run):",
        "[default0]:ValueError: bad row",
        "[default1]:[rank1]: KeyError: 'loss'",
    ]
    assert list(told_errors(lines)) == [
        "[default0]:ValueError: bad row",
        "[default1]:[rank1]: Exception in thread stats (run): KeyError: 'loss'",
    ]
