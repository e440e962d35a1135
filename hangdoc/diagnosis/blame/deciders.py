"""The ranks to blame: the first answer of an ordered list of deciders.

A proved divergence outranks a root of the wait-for graph: a rank asleep in correct code is not guilty. Ties between
repairs are broken by a rank guard, then by the ranks' own history; a tie that remains makes the blame only possible.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from hangdoc.diagnosis.blame.across_groups import order_across_groups
from hangdoc.diagnosis.blame.arguments import Disagreement
from hangdoc.diagnosis.blame.crossed_by_item import CrossedByItem, crossed_by_item
from hangdoc.diagnosis.blame.crossed_groups import crossed_groups
from hangdoc.diagnosis.blame.divergences import (
    compare_places,
    decide,
)
from hangdoc.diagnosis.blame.exchanges import UnequalExchange, unequal_exchange
from hangdoc.diagnosis.blame.foreign_store import ForeignStore, foreign_store
from hangdoc.diagnosis.blame.group_creation import LOCAL, missing_creations
from hangdoc.diagnosis.blame.inquiry import Decider, Inquiry
from hangdoc.diagnosis.blame.launcher import StoppedLauncher, stopped_launcher
from hangdoc.diagnosis.blame.micro_batches import UnevenMicroBatches, uneven_micro_batches
from hangdoc.diagnosis.blame.missing_request import (
    missing_request,
)
from hangdoc.diagnosis.blame.mixed_threads import MixedThreads, mixed_threads
from hangdoc.diagnosis.blame.on_the_gpu import stuck_device
from hangdoc.diagnosis.blame.only_seen import nobody_seen, only_seen
from hangdoc.diagnosis.blame.own_loop import left_own_loop
from hangdoc.diagnosis.blame.shared_number import shared_number
from hangdoc.diagnosis.blame.siblings import left_its_siblings
from hangdoc.diagnosis.blame.thread_blame import thread_wait
from hangdoc.diagnosis.blame.unseen_groups import by_groups_of_store
from hangdoc.diagnosis.blame.unset_key import UnsetKey, unset_key
from hangdoc.diagnosis.blame.went_past import WentPast, went_past
from hangdoc.diagnosis.blame.with_roots import cut_off, gone_roots, unseen_message, waiting_roots
from hangdoc.diagnosis.blame.without_roots import (
    all_arrived,
    asking_ranks,
    ended_ranks,
    gone_ranks,
    keys_of_all,
    nothing,
    one_rank_twice,
    other_way_before,
    polling_ranks,
    separate_meetings,
    threads_on_one_group,
    unseen_messages,
)
from hangdoc.diagnosis.context import Case
from hangdoc.diagnosis.explanation import (
    Blame,
    Diverged,
    Explanation,
    Stuck,
)
from hangdoc.diagnosis.messages.stray import stray_message, unequal_message
from hangdoc.model.kinds import MESSAGES, Confidence


def story(case: Case) -> Blame[Explanation]:
    """The ranks that must change, why, and how sure that is. A rank that was not seen is never blamed."""
    if case.job.mode == "log" and len(case.seen) == 1:
        return nobody_seen()  # the stack of one rank names no other, and does not show that others wait for it
    inquiry = Inquiry(case)
    found = next(found for decide in DECIDERS if (found := decide(inquiry)) is not None)
    return only_seen(found, case.hidden, case.seen)


def store_of_others(inquiry: Inquiry) -> Blame[ForeignStore] | None:
    """Another job's process that serves the store. First: the ranks that joined through it have calls that rank 0,
    which ended because of that process, never made."""
    return foreign_store(inquiry.case)


def missing_group(inquiry: Inquiry) -> Blame[Diverged] | None:
    """A group that some ranks never made. Before all other calls: no call of such a group can match, whatever else
    differs."""
    case = inquiry.case
    created = missing_creations(case)
    if not created:
        return shared_number(case)
    found = decide(case, created, proved=True)
    gap = found.found.gap
    rest = tuple(sorted(case.seen - {*found.culprits}))
    if not case.programs and not found.alternatives and 0 < len(rest) < len(found.culprits):
        sure = f"{found.sure}; whether the many left it out or the few made one too many, stacks do not show"
        return replace(found, alternatives=(rest,), confidence=Confidence.POSSIBLE, sure=sure)
    if gap is not None and gap.token.group[0] == LOCAL and found.found.alignment.history.inferred:
        return replace(found, sure="the number of ports that each rank listens on, and the stacks")
    if found.confidence == Confidence.CERTAIN and gap is not None and gap.token.frame is None:
        sure = f"{found.sure}; the line that made the group could not be seen"
        return replace(found, confidence=Confidence.LIKELY, sure=sure)
    if found.confidence == Confidence.CERTAIN and not case.programs:
        sure = "the groups of all ranks seen, their call sequences not"
        return replace(found, confidence=Confidence.LIKELY, sure=sure)
    return found


def items_in_other_order(inquiry: Inquiry) -> Blame[CrossedByItem] | None:
    """Groups that the items of one loop chose in another order. Before the groups of the store: nobody is past a call
    of theirs, so none is missing."""
    return crossed_by_item(inquiry.case)


def groups_of_store(inquiry: Inquiry) -> Blame[Diverged] | None:
    """Calls of several groups that only the store tells of. Before the divergence, which takes the calls that stacks
    show for those of one group."""
    return by_groups_of_store(inquiry.case)


def divergence(inquiry: Inquiry) -> Blame[Diverged] | None:
    """Calls that can't match any more. Before the graph's roots, who may be innocent: they wait in correct code."""
    found = inquiry.divergence
    if found is None or inquiry.disagreement is not None:
        return None
    case = inquiry.case
    if case.job.mode == "dump" and case.streams:
        return found  # what a root does now, its dump does not show: it may be at its end
    return found if found.proved or not case.graph.roots else None


def message_gone_astray(inquiry: Inquiry) -> Blame[Explanation] | None:
    """A message that differs from all that its rank passed before, among devices. Before all that counts calls: it
    holds up the ranks as if calls were missing, and none is."""
    return stray_message(inquiry.case)


def message_of_other_size(inquiry: Inquiry) -> Blame[Explanation] | None:
    """A message whose sides differ in size. Before the devices: these have all issued it."""
    return unequal_message(inquiry.case)


def exchange_of_other_sizes(inquiry: Inquiry) -> Blame[UnequalExchange] | Blame[Disagreement] | None:
    """An all_to_all whose sizes do not fit. Before the devices: these have all issued it."""
    return unequal_exchange(inquiry.case)


def own_loop(inquiry: Inquiry) -> Blame[Explanation] | None:
    """A rank that left its own loop's order, or that of its siblings, among devices that wait in messages. Before the
    divergence: ranks that pass messages have different calls by nature."""
    case = inquiry.case
    if not any(case.activities[rank].kind in MESSAGES for rank in case.streams.fronts):
        return None
    found = left_own_loop(case) or left_its_siblings(case)
    agreed = inquiry.disagreement
    # One call that it made with other arguments explains more than that it left its order.
    if found is not None and found.found.what == "changed" and agreed is not None and agreed.culprits == found.culprits:
        return agreed
    return found


def groups_crossed(inquiry: Inquiry) -> Blame[Explanation] | None:
    """Devices that use two groups in opposite order. Before the divergence, which sees every group by itself."""
    return crossed_groups(inquiry.case)


def stuck_on_a_device(inquiry: Inquiry) -> Blame[Explanation] | None:
    """A call that all its members have issued and stand at. Before the graph's roots, who are these ranks."""
    return stuck_device(inquiry.case)


def stopped_store(inquiry: Inquiry) -> Blame[StoppedLauncher] | None:
    """A stopped launcher that serves the store. After ranks that are gone; before the waits between ranks, because no
    wait on the store can end, whatever the ranks do."""
    return stopped_launcher(inquiry.case)


def differing_arguments(inquiry: Inquiry) -> Blame[Disagreement] | None:
    """One call with different arguments. Before the graph's answers: here all ranks are in that call."""
    return inquiry.disagreement


def other_micro_batches(inquiry: Inquiry) -> Blame[UnevenMicroBatches] | None:
    """Stages of a pipeline that count their micro-batches differently, by a number of the program's own that all of
    them show. Before the graph, in which neighbors that wait for each other's messages are a
    circle."""
    return uneven_micro_batches(inquiry.case)


def waiting_threads(inquiry: Inquiry) -> Blame[Explanation] | None:
    """A thread of a rank that keeps others waiting beside its main thread. Before the graph of ranks, in which that
    rank waits itself: a circle, or no root."""
    case = inquiry.case
    return next((found for decide in _BESIDE_MAIN if (found := decide(case)) is not None), None)


_BESIDE_MAIN: tuple[Callable[[Case], Blame[Explanation] | None], ...] = (
    missing_request,
    thread_wait,
)


def key_left_out(inquiry: Inquiry) -> Blame[UnsetKey] | None:
    """A rank that alone has not set its key in the store. Before the graph, in which it waits like those that wait for
    it."""
    return unset_key(inquiry.case)


def past_what_others_poll_for(inquiry: Inquiry) -> Blame[WentPast] | None:
    """A rank that went past a line which lets those go on that poll. After all that knows more of what they poll for;
    before other roots, who poll in correct code."""
    return went_past(inquiry.case) if inquiry.case.graph.roots else None


def other_than_siblings(inquiry: Inquiry) -> Blame[Explanation] | None:
    """A rank that left the order of its siblings, where devices have passed messages and none waits in one now. After
    the divergence, which sees what one group shows by itself."""
    case = inquiry.case
    messages = any(program.journal.point_to_points for program in case.programs.values())
    return left_its_siblings(case) if messages and case.graph.stuck else None


def stuck_ranks(inquiry: Inquiry) -> Blame[Explanation] | None:
    """Ranks that no future step sets free. The most specific answer comes first: an unproved divergence, the order
    across groups, the lines of the stacks; else the evidence decides who it is."""
    case = inquiry.case
    if not case.graph.stuck:
        return None
    return inquiry.divergence or order_across_groups(case) or compare_places(case) or Blame(Stuck(), proved=True)


def thread_beside_main(inquiry: Inquiry) -> Blame[MixedThreads] | None:
    """A call that all ranks wait in, and another thread of some. Before the divergence, which sees the call of one
    thread of each rank."""
    found = mixed_threads(inquiry.case)
    return found if found is not None and found.found.others else None


DECIDERS: tuple[Decider, ...] = (
    store_of_others,
    missing_group,
    message_gone_astray,
    own_loop,
    groups_crossed,
    items_in_other_order,
    groups_of_store,
    thread_beside_main,
    divergence,
    gone_roots,
    stopped_store,
    differing_arguments,
    other_micro_batches,
    waiting_threads,
    key_left_out,
    other_than_siblings,
    stuck_ranks,
    unseen_message,
    message_of_other_size,
    exchange_of_other_sizes,
    stuck_on_a_device,
    cut_off,
    past_what_others_poll_for,
    waiting_roots,
    threads_on_one_group,
    other_way_before,
    all_arrived,
    ended_ranks,
    keys_of_all,
    polling_ranks,
    separate_meetings,
    one_rank_twice,
    gone_ranks,
    unseen_messages,
    asking_ranks,
    nothing,
)
"""In the order in which they are asked; each docstring gives the reason for its place."""
