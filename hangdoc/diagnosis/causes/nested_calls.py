"""HD505: ranks call each other back, and all threads for such calls wait for one more."""

from __future__ import annotations

from hangdoc.diagnosis.blame.nested_calls import NestedCalls
from hangdoc.diagnosis.causes.finding import Finding
from hangdoc.diagnosis.causes.phrases import place, where_they_wait
from hangdoc.diagnosis.causes.registry import cause
from hangdoc.diagnosis.context import Case
from hangdoc.diagnosis.explanation import Blame
from hangdoc.diagnosis.frames.landmarks import plain
from hangdoc.diagnosis.frames.stacks import user_stack
from hangdoc.model.message import Does, Message, Ranks, joined, sentence


@cause("HD505", explains=NestedCalls, order=87)
def nested_calls(case: Case, blame: Blame[NestedCalls]) -> Finding:
    """HD505: a thread that runs another rank's call waits for the answer to its own, which no thread is left to run."""
    hop = blame.found.chain.circle[0]
    own = user_stack(hop.node.thread.frames)
    called = f"{plain(own[-1].function)}()" if own else "a function"
    there: Message = place(hop.node.where)
    return Finding(
        "HD505",
        sentence(
            [Does(blame.culprits, "runs", "run"), f" {called} for each other and wait in it, at ", there],
            "no thread is left to run the call that each waits for",
            where_they_wait(case, blame.culprits),
        ),
        joined(
            [f"{called} calls another rank and waits for its answer, and that comes back to ", Ranks(blame.culprits)],
            "each such call takes one of the threads for remote calls until it is answered",
        ),
        "give the agents more threads than calls can be inside each other (num_worker_threads), or let the function "
        "return a future (`rpc.functions.async_execution`) instead of waiting",
    )
