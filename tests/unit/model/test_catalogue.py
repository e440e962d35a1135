"""Every cause is explained, under a code that never changes."""

from __future__ import annotations

import pytest

from hangdoc.model.catalogue import catalogue, cause, find, nearest
from hangdoc.model.diagnosis import Cause

# Public: adding is fine, changing is not.
CODES = """
HD101 collective-on-some-ranks
HD102 uneven-iterations
HD103 skipped-after-exception
HD104 argument-mismatch
HD105 root-mismatch
HD106 operation-mismatch
HD107 order-across-groups
HD108 two-threads-one-group
HD109 implicit-collective
HD110 parted-before-launch
HD111 unused-parameters
HD112 asynchronous-code
HD113 rank-behind
HD201 p2p-cycle
HD202 p2p-missing-partner
HD301 rank-never-joined
HD302 wrong-rendezvous
HD303 new-group-not-by-all
HD304 waiting-for-nodes
HD305 store-key-never-set
HD306 relaunched-worker
HD401 rank-exited
HD402 rank-killed
HD403 rank-stopped
HD404 uninterruptible
HD405 waiting-for-a-person
HD501 straggler
HD502 compiling
HD503 dataloader-stuck
HD504 file-lock
HD505 thread-lock
HD506 gil-held
HD507 blocked-io
HD508 sleeping
HD509 waiting-for-child
HD601 partition
HD602 all-arrived
HD701 exit-blocked
HD702 destroy-not-by-all
HD703 aborted-at-exit
"""


def test_codes_and_names_are_the_published_ones():
    published = dict(line.split() for line in CODES.split("\n") if line)
    assert {code: entry.name for code, entry in catalogue().items()} == published


@pytest.mark.parametrize("entry", catalogue().values(), ids=lambda entry: entry.code)
def test_every_entry_says_what_a_reader_needs(entry):
    assert 15 < len(entry.title) < 90
    assert not entry.title.endswith(".")
    assert len(entry.explanation) > 60
    assert entry.arises
    assert len(entry.tell_apart) > 30
    assert len(entry.fix) > 30
    for text in (entry.explanation, entry.tell_apart, entry.fix, *entry.arises):
        assert text == text.strip()
        assert "\n" not in text
        assert text.count("`") % 2 == 0


def test_causes_of_the_diagnosis():
    assert cause("HD403") == Cause("HD403", "rank-stopped", "A rank's process is stopped")
    with pytest.raises(KeyError):
        cause("HD999")


def test_people_may_write_it_their_way():
    assert find("hd101") is find(" HD101 ") is find("Collective-on-Some-Ranks") is catalogue()["HD101"]
    assert find("") is None
    assert next(entry.code for entry in nearest("uneven-iteration")) == "HD102"
    assert nearest("xyzzy") == ()
