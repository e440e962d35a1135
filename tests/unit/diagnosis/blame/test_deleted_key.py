"""Who has run the line that deletes a store key."""

from __future__ import annotations

import dataclasses

from cases import case

from hangdoc import api
from hangdoc.diagnosis.blame.deleted_key import deleted_key
from hangdoc.diagnosis.context import Case
from hangdoc.model.snapshot import JobSnapshot, SourceText

CALL_EACH_OTHER = """\
def purge(store, keys):
    store.delete_key(keys[0])
    purge_again(store, keys)
def purge_again(store, keys):
    purge(store, keys)
"""


def with_more(job: JobSnapshot) -> JobSnapshot:
    """The same with two functions more that call each other, of which no counters are known."""
    more = SourceText("/job/sweeping.py", "<module>", 1, CALL_EACH_OTHER)
    return dataclasses.replace(job, sources=(more, *job.sources))


def test_functions_that_call_each_other_have_an_end() -> None:
    job = api.load(case("key_swept_too_early"))
    found, more = deleted_key(Case(job)), deleted_key(Case(with_more(job)))
    assert found is not None and more is not None
    assert (found.culprits, found.found.deleted_at) == (more.culprits, more.found.deleted_at)
