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
from hangdoc.model.message import Does, Message, Verb, joined, sentence


@cause("HD505", explains=NestedCalls, order=87)
def nested_calls(case: Case, blame: Blame[NestedCalls]) -> Finding:
    """HD505: the threads that run other ranks' calls wait for the answers to calls of their own."""
    hop = blame.found.chain.circle[0]
    own = user_stack(hop.node.thread.frames)
    called = f"{plain(own[-1].function)}()" if own else "a function"
    there: Message = place(hop.node.where)
    return Finding(
        "HD505",
        sentence(
            [
                [Does(blame.culprits, "runs", "run"), f" {called} for other ranks and "],
                [Verb(blame.culprits, "waits", "wait"), " in it, at ", there, ", for the answers to further calls"],
            ],
            where_they_wait(case, blame.culprits),
        ),
        joined(
            f"{called} calls another rank and waits for its answer, which takes one of the threads for remote calls",
            "where as many such calls are inside each other as a rank has threads, none of them is answered",
        ),
        "give the agents more threads than calls can be inside each other (num_worker_threads), or let the function "
        "return a future (`rpc.functions.async_execution`) instead of waiting",
    )
