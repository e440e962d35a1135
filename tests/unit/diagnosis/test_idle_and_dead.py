"""Pairs that look alike: ranks that wait for something that still comes, and the nearest ones that hang. The latter are
told by an attach at once, and by a watch when its patience ends at the latest, however the former are kept quiet."""

from __future__ import annotations

from dataclasses import replace

import pytest
from cases import case

from hangdoc import api


@pytest.mark.parametrize(
    "name",
    [
        "request_body_too_short_attach",  # of idle_http_server_attach: a client is there, and waits as well
        "request_reader_failed_attach",  # of idle_request_queue_attach: the thread that fills the queue has ended
        "future_left_unset_attach",  # of idle_event_loop_server_attach: nobody listens
        "mark_that_nobody_makes_attach",  # of …_to_a_deadline_attach: no time ends the poll
        "pool_lost_a_task_attach",  # of pool_at_work_attach: no child works
        "results_nobody_reads",  # of results_read_late_attach: the parent waits for the exit
        "rpc_shutdown_after_error",  # of rpc_master_computes_attach: nobody computes
    ],
)
def test_what_hangs_is_told_when_patience_ends(name: str) -> None:
    job = api.load(case(name))
    assert api.diagnose(replace(job, mode="watch", stalled_for=30.0, give_up_after=30.0)).outcome == "hang"
    assert job.mode == "watch" or api.diagnose(job).outcome == "hang"
