"""HD505: a server of remote calls has too few threads for calls that wait for each other."""

from __future__ import annotations

from hangdoc.diagnosis.blame.full_server import FullServer
from hangdoc.diagnosis.causes.finding import Finding
from hangdoc.diagnosis.causes.phrases import at, line_of, where_they_wait
from hangdoc.diagnosis.causes.registry import cause
from hangdoc.diagnosis.context import Case
from hangdoc.diagnosis.explanation import Blame
from hangdoc.model.message import Does, joined, sentence


@cause("HD505", explains=FullServer, order=300)
def too_few_threads(case: Case, blame: Blame[FullServer]) -> Finding:
    """HD505: all threads for remote calls wait for a further call, which none of them is left to run."""
    found, (server,) = blame.found, blame.culprits
    called, first = f"{found.called}()", case.activities[found.waiting[0]]
    rest = tuple(r for r in sorted(case.activities) if r not in (*found.waiting, server))
    one, asking = found.threads == 1, tuple(r for r in found.waiting if r != server) or found.waiting
    if found.in_turn:
        return Finding(
            "HD505",
            sentence(
                [
                    [f"rank {server}'s server works on one request at a time, and in the one that it is at, "],
                    [f"{called} waits at ", line_of(found.at), " for what a further request brings; "],
                    [Does(asking, "waits", "wait"), " for an answer", at(first.where)],
                ],
                where_they_wait(case, rest),
            ),
            joined(
                [f"{called} waits at ", line_of(found.at), ", and no other request is read meanwhile"],
                f"{len(found.waiting)} requests wait for its answer",
            ),
            "serve each request in a thread of its own (ThreadingHTTPServer, ThreadingMixIn, a thread for each "
            "connection), or answer at once and let the callers ask again until all have come",
        )
    unbegun = f"{next(iter(found.unbegun))}()" if len(found.unbegun) == 1 else called
    for_it = found.unbegun.get(unbegun.removesuffix("()"), found.waiting)
    rest = tuple(r for r in sorted(case.activities) if r not in (*for_it, server))
    return Finding(
        "HD505",
        sentence(
            [
                [f"rank {server} has no thread left to run {unbegun}, for whose answer "],
                [Does(for_it, "waits", "wait"), at(case.activities[for_it[0]].where)],
            ],
            where_they_wait(case, rest),
        ),
        joined(
            [
                f"{called} waits at ",
                line_of(found.at),
                f" for a further call of it, and {'its one thread' if one else f'all {found.threads} threads'} for "
                "calls of other ranks do so",
            ],
            f"the {len(found.waiting)} ranks that called {f'rank {server}' if found.unbegun else 'it'} need one each",
        ),
        "give RPC at least as many threads as ranks call at once (num_worker_threads of the backend's options), or let "
        "the function return a future that the last call sets (rpc.functions.async_execution)",
    )
