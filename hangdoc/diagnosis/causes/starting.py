"""HD3xx: starting up."""

from __future__ import annotations

from hangdoc.diagnosis.blame.foreign_store import ForeignStore
from hangdoc.diagnosis.blame.launcher import WaitingForNodes
from hangdoc.diagnosis.causes.addresses import what_set_them
from hangdoc.diagnosis.causes.call_conditions import start_of_ranks
from hangdoc.diagnosis.causes.finding import Finding, others_of
from hangdoc.diagnosis.causes.phrases import at, place, where_they_wait
from hangdoc.diagnosis.causes.registry import cause
from hangdoc.diagnosis.context import Case
from hangdoc.diagnosis.explanation import Blame, Explanation, SeparateMeetings, SharedRank
from hangdoc.diagnosis.frames.landmarks import below_user, plain
from hangdoc.diagnosis.frames.names import names
from hangdoc.diagnosis.frames.stacks import user_stack
from hangdoc.model.kinds import ActivityKind
from hangdoc.model.message import Does, Joined, Message, Ranks, Verb, joined, sentence


@cause("HD306", explains=Explanation, order=80)
def relaunched_worker(case: Case, blame: Blame[Explanation]) -> Finding | None:
    """HD306: a helper process runs the script again, main part and all, and joins under its parent's rank."""
    for rank in blame.culprits:
        process = case.ranks[rank].process
        for helper in process.children if process is not None else ():
            stack = main.frames if helper.last and (main := helper.last.main) else ()
            joined = any("torch/distributed/" in f.file for f in below_user(stack))
            frames = [f for f in user_stack(stack) if not f.file.startswith("<")]
            if not joined or not frames or not any(plain(f.function) in names("runs_main_again") for f in stack):
                continue
            others = others_of(case, blame)
            return Finding(
                "HD306",
                sentence(
                    [
                        [f"process {helper.pid}, which rank {rank} started at ", place(case.activities[rank].where)],
                        f", runs the script again and has joined as another rank {rank}",
                        [": it is at ", place(frames[0])],
                    ],
                    where_they_wait(case, others),
                ),
                [
                    ["a spawned process imports the main script, and ", place(frames[-1]), " runs on import: "],
                    'nothing keeps it under `if __name__ == "__main__":`',
                ],
                'put the program under `if __name__ == "__main__":`',
            )
    return None


@cause("HD302", explains=SeparateMeetings, order=50)
def wrong_rendezvous(case: Case, blame: Blame[SeparateMeetings]) -> Finding | None:
    """HD302: ranks look for each other at different addresses."""
    places = blame.found.places
    addresses: list[Message] = [[Ranks.of(ranks), f" at {where}"] for where, ranks in places.items()]
    line = place(case.activities[blame.culprits[0]].where)
    deciding = what_set_them(case.sources, places)
    return Finding(
        "HD302",
        sentence(
            [
                ["the ranks look for each other at different addresses", [" (", line, ")"] if line else "", ": "],
                Joined(addresses, ", "),
            ]
        ),
        joined(
            "the ranks were given different addresses for the rendezvous, so they wait on different stores",
            [Joined(deciding, " and "), " decides which address a rank gets"] if deciding else "",
        ),
        "give every rank the same MASTER_ADDR and MASTER_PORT, or the same init_method",
        decided_at=deciding[-1] if deciding else None,
    )


@cause("HD302", explains=ForeignStore, order=55)
def port_of_another_job(case: Case, blame: Blame[ForeignStore]) -> Finding:
    """HD302: the ranks are connected to the store of another job."""
    found, server = blame.found, blame.found.server
    if server is None:
        return _port_in_use(case, found)
    known = " ".join(word.rpartition("/")[2] for word in server.argv[:2])
    rank = f", rank {server.rank} of another job" if server.rank is not None else ""
    who = "a process that hangdoc may not read"
    if server.pid is not None:
        who = f"another process (pid {server.pid}{f', {known}' if known else ''}{rank})"
    waiting = tuple(r for r in found.connected if case.activities[r].kind == ActivityKind.STORE_WAIT)
    joined_there = tuple(r for r in found.connected if r not in waiting)
    return Finding(
        "HD302",
        sentence(
            [
                f"port {found.port} belongs to {who}: ",
                ["this job's ", Does(waiting, "waits", "wait"), " at its store"] if waiting else "",
                [" and " if waiting else "this job's ", Does(joined_there, "has", "have"), " joined through its store"]
                if joined_there
                else "",
            ],
        ),
        [
            f"rank 0 should serve the store at port {found.port} and ",
            "could not listen there" if found.refused else "no process of rank 0 is there",
        ],
        "give this job a MASTER_PORT of its own, and start it again",
    )


def _port_in_use(case: Case, found: ForeignStore) -> Finding:
    where = next(iter(user_stack(end.stack)), None) if (end := case.ranks[0].exit) is not None else None
    return Finding(
        "HD302",
        sentence(
            [f"rank 0 could not listen at port {found.port}", at(where), ": another process has it"],
            where_they_wait(case, found.connected),
        ),
        [
            "the exception that ended rank 0 says that the address is in use: another job, or a process that an "
            "earlier run has left, listens at the port where rank 0 should serve the store"
        ],
        f"give this job a MASTER_PORT of its own; `ss -ltnp 'sport = :{found.port}'` names the process that has this "
        "one, which may be left of an earlier run",
    )


@cause("HD301", explains=Explanation, order=60)
def never_joined(case: Case, blame: Blame[Explanation]) -> Finding | None:
    """HD301: ranks wait on the store for a rank that no process carries."""
    absent = tuple(r for r in blame.culprits if case.activities[r].kind == ActivityKind.ABSENT)
    if not absent:
        return None
    waiting = tuple(r for r, a in case.activities.items() if a.kind == ActivityKind.STORE_WAIT)
    if not waiting:
        return None
    present = [r for r, a in case.activities.items() if a.kind != ActivityKind.ABSENT and r in case.seen]
    size = case.job.world_size or len(case.activities)
    twice = [(rank, (s.process.pid, *s.rivals)) for rank, s in case.ranks.items() if s.rivals and s.process is not None]
    if twice:
        rank, pids = twice[0]
        carried = f"rank {rank} is carried by {len(pids)} processes ({', '.join(map(str, pids))})"
        return Finding(
            "HD301",
            sentence([carried, " and ", Ranks(absent), " by none"], where_they_wait(case, waiting)),
            f"the job was set up for {size} ranks, and {len(pids)} processes were given the same RANK",
            f"give each process a RANK of its own, from 0 to {size - 1}",
        )
    started = start_of_ranks(case)
    decided = started.under if started is not None else []
    return Finding(
        "HD301",
        sentence(
            [Ranks(absent), " never joined: no process carries ", Verb(absent, "it", "them")],
            where_they_wait(case, waiting),
        ),
        joined(
            [
                f"the job was set up for {size} ranks, and {len(present)} ",
                [Verb(tuple(present), "was", "were"), " ever seen on this machine"],
            ],
            started.text if started is not None else "",
        ),
        ["start ", Ranks(absent), f" as well, or set the world size to {len(present)}"],
        decided_at=decided[-1] if decided else None,
    )


@cause("HD301", explains=SharedRank, order=62)
def joined_as_one(case: Case, blame: Blame[SharedRank]) -> Finding:
    """HD301: several processes join as one rank."""
    found, size = blame.found, case.job.world_size or len(case.activities)
    pairs: list[Message] = [["those of ", Ranks(ranks), f" as rank {number}"] for number, ranks in found.twice.items()]
    where = case.activities[blame.culprits[0]].where
    many: Message = ["some processes join as one rank", at(where), ": ", Joined(pairs, ", ")]
    return Finding(
        "HD301",
        sentence(many, ["none joins as ", Ranks(found.missing)]),
        "what a process gives to init_process_group() is its rank, whatever RANK says: all wait for those that "
        "nobody gives",
        f"let every process give a rank of its own, from 0 to {size - 1}",
    )


@cause("HD304", explains=WaitingForNodes, order=410)
def waiting_for_nodes(case: Case, blame: Blame[WaitingForNodes]) -> Finding:
    """HD304: torchrun's agent is in the rendezvous and has started no rank."""
    return Finding(
        "HD304",
        f"torchrun waits in the rendezvous for other nodes (started with --nnodes {blame.found.nodes}); "
        "no rank has been started.",
        "the agent of this node has joined, and fewer nodes than --nnodes asks for have",
        "start torchrun on the other nodes with the same --rdzv-endpoint and --rdzv-id, or lower --nnodes; check "
        "that they can reach the endpoint",
    )
