"""Records that watches write to each other: what is read back, and what is refused."""

from __future__ import annotations

import json
from dataclasses import asdict, replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hangdoc.sidecar.meeting.records import LARGEST_RECORD, Beat, Orders, Verdict, opened, read, sealed, written

BEAT = Beat("hostb-1", "hostb", "boot 1 2", (2, 3), 4, 7, still=3.5, heard=1)
ORDERS = Orders("hosta-1", "hosta", 9, 2, 1, waiting=True, digests=True, pieces=True, pause=0.5)
VERDICT = Verdict(2, "hang", "Rank 3 skips it.", "hosta", "/x.hangdoc", may_end=True, hosts=2)
KEY = b"k" * 32


@pytest.mark.parametrize("calm", [0, 4.9, 30.1, 1e9, -5, "5", None, True, [5], float("nan"), float("inf")])
def test_nobody_is_told_to_beat_often_or_hardly_ever(calm: object) -> None:
    with pytest.raises(ValueError, match="no calm in the orders"):
        read(Orders, json.dumps({**asdict(ORDERS), "calm": calm}).encode())


@pytest.mark.parametrize("calm", [5, 10.0, 30])
def test_how_calm_a_watch_may_be(calm: float) -> None:
    assert read(Orders, written(replace(ORDERS, calm=calm))).calm == calm


def test_orders_of_an_earlier_version_leave_watches_as_calm_as_they_were() -> None:
    document = asdict(ORDERS)
    del document["calm"]
    assert read(Orders, json.dumps(document).encode()) == ORDERS


END = (3, 4711, 1700000000.25, "hostb", "5f3a")


@pytest.mark.parametrize(
    "record", [BEAT, replace(BEAT, still=None, left=True), ORDERS, VERDICT, replace(VERDICT, end=END)]
)
def test_round_trip(record: Beat | Orders | Verdict) -> None:
    assert read(type(record), written(record)) == record


@pytest.mark.parametrize(
    "change",
    [
        {"ranks": [-1]}, {"ranks": [2.0]}, {"ranks": "23"}, {"world": 10**9}, {"number": True}, {"number": -1},
        {"still": -1}, {"still": "3"}, {"host": "x" * 5000}, {"host": None}, {"left": 1}, {"ranks": [10**7]},
        {"ranks": [2, 3, 2]}, {"ranks": [1] * 50_000}, {"host": "x" * 300}, {"identity": "x" * 300},
        {"member": "x" * 300},
    ],
)  # fmt: skip
def test_a_wrong_value_is_refused(change: dict[str, object]) -> None:
    with pytest.raises(ValueError, match=f"no {next(iter(change))} in the beat"):
        read(Beat, json.dumps({**asdict(BEAT), **change}).encode())


@pytest.mark.parametrize(
    "end",
    [None, 3, [3], ["3", 4711, 1.5, "b", "m"], [3, -1, 1.5, "b", "m"], [3, 4711, None, "b", "m"],
     [3, 4711, 1.5, 7, "m"], [3, 4711, 1.5, "b", "m", 6], [3, 4711, True, "b", "m"]],
)  # fmt: skip
def test_what_names_no_process_to_end_is_refused(end: object) -> None:
    with pytest.raises(ValueError, match="no end in the verdict"):
        read(Verdict, json.dumps({**asdict(VERDICT), "end": end}).encode())


@pytest.mark.parametrize(
    "data",
    [b"", b"[]", b"null", b"[" * 100_000, b'{"still": NaN}', b"\xff", b"0" * (LARGEST_RECORD + 1), b'{"member":"x"}'],
)
def test_what_is_no_record_is_refused(data: bytes) -> None:
    with pytest.raises(ValueError):
        read(Beat, data)


def test_not_a_number_is_no_time() -> None:
    text = json.dumps({**asdict(BEAT), "still": float("nan")}).encode()
    with pytest.raises(ValueError, match="no still"):
        read(Beat, text)


def test_a_seal_is_of_one_key_name_and_payload() -> None:
    value = sealed(KEY, "beat/a", b"payload")
    assert opened(KEY, "beat/a", value) == b"payload"
    for key, name, forged in (
        (b"x" * 32, "beat/a", value),
        (KEY, "beat/b", value),
        (KEY, "beat/a", value + b"!"),
        (KEY, "beat/a", value[1:]),
        (KEY, "beat/a", b""),
    ):
        with pytest.raises(ValueError, match="not sealed by a watch"):
            opened(key, name, forged)


@given(st.binary(max_size=200))
def test_no_bytes_make_it_fail_otherwise(data: bytes) -> None:
    for kind in (Beat, Orders, Verdict):
        try:
            read(kind, data)
        except ValueError:
            continue
