"""HD3xx: starting up."""

from __future__ import annotations

from hangdoc.diagnosis.blame.launcher import WaitingForNodes
from hangdoc.diagnosis.calls.history import Token
from hangdoc.diagnosis.causes.finding import (
    Finding,
    capital,
    condition_text,
    doing,
    others_of,
    place,
    telling,
    verb,
    wait_sentence,
)
from hangdoc.diagnosis.causes.registry import cause
from hangdoc.diagnosis.condition.candidates import CONDITIONS
from hangdoc.diagnosis.context import Case
from hangdoc.diagnosis.explanation import Blame, Diverged, Explanation, OutsideWait, SeparateMeetings
from hangdoc.diagnosis.frames.landmarks import below_user, plain
from hangdoc.diagnosis.frames.names import names
from hangdoc.diagnosis.frames.naming import file_name
from hangdoc.diagnosis.frames.stacks import user_stack
from hangdoc.diagnosis.source.guards import guards
from hangdoc.diagnosis.source.queries import store_sets
from hangdoc.diagnosis.state.activity import waits_for_a_key
from hangdoc.model.kinds import ActivityKind
from hangdoc.model.process import Frame
from hangdoc.model.wording import name_ranks

_CALL_IT_ON_ALL = "call new_group on every rank, in the same order, and use the group only on its members"


def _makes_groups(frame: Frame) -> bool:
    return plain(frame.function) in names("makes_group")


@cause("HD303", explains=Diverged, order=70)
def new_group_not_by_all(case: Case, blame: Blame[Diverged]) -> Finding | None:
    """HD303: new_group called by some ranks only, or a different number of times."""
    gap = blame.found.gap
    made = gap is not None and (gap.token.op == "new_group" or any(_makes_groups(f) for f in gap.token.stack))
    if gap is None or not made:
        return None
    culprits, others = blame.culprits, others_of(case, blame)
    sides = [token for token in (gap.mine, gap.theirs) if token is not None]
    if gap.kind == "delete" and [token.op for token in sides] == ["new_group", "new_group"]:
        here, there = telling(gap)
        # Of a group that a rank is no member of, its journal says nothing.
        history = blame.found.alignment.history
        seen = tuple(r for r in others if history.at(r, gap.token.sequence) is not None)
        return _unlike_groups(case, blame, [(sides[0], here, culprits), (sides[1], there, seen or others)])
    callers, missing = (culprits, others) if gap.kind == "delete" else (others, culprits)
    elsewhere = case.activities[missing[0]] if missing else None
    now = f"; {name_ranks(missing)} {verb(missing, 'is', 'are')} in {doing(elsewhere)}" if elsewhere else ""
    return Finding(
        "HD303",
        capital(
            f"only {name_ranks(callers)} {verb(callers, 'calls', 'call')} new_group at {place(gap.token.frame)}{now}."
            if gap.token.frame is not None
            else f"{name_ranks(callers)} {verb(callers, 'has', 'have')} made a process group that "
            f"{name_ranks(missing)} left out{now}."
        ),
        condition_text(case, blame)
        or "new_group is a collective of all ranks of the job, also of those that will not be members",
        _CALL_IT_ON_ALL,
    )


def _unlike_groups(
    case: Case, blame: Blame[Diverged], making: list[tuple[Token, Frame | None, tuple[int, ...]]]
) -> Finding:
    """Both sides are in new_group, each making a group of its own."""
    told = [
        f"{name_ranks(ranks)} {verb(ranks, 'makes', 'make')} a process group"
        + (f" of {name_ranks(token.sizes[0])}" if token.sizes and token.sizes[0] else "")
        + (f" at {place(frame)}" if frame is not None else "")
        for token, frame, ranks in making
    ]
    unlike = len({token.sizes for token, _, _ in making}) > 1
    return Finding(
        "HD303",
        capital(f"{told[0]} where {told[1]}; the groups are not the same, and do not meet."),
        condition_text(case, blame)
        or "new_group is a collective of all ranks of the job: all have to make the same groups in the same order",
        "give new_group the same list of ranks on every rank, and make the groups in the same order"
        if unlike
        else _CALL_IT_ON_ALL,
    )


@cause("HD305", explains=OutsideWait, order=380)
def key_never_set(case: Case, blame: Blame[OutsideWait]) -> Finding | None:
    """HD305: a rank waits for a store key that nobody sets."""
    waiting = tuple(r for r in blame.culprits if waits_for_a_key(case.activities[r]))
    if not waiting:
        return None
    first = case.activities[waiting[0]]
    others = others_of(case, blame)
    rest = f"; {wait_sentence(case, others)}" if others else ""
    return Finding(
        "HD305",
        capital(
            f"{name_ranks(waiting)} {verb(waiting, 'waits', 'wait')} for a store key that nobody sets: {first.text} "
            f"at {place(first.where)}{rest}."
        ),
        "no rank is on its way to set it" + _on_the_way_to_set(case, first.where),
        "set the key before anybody waits for it, under the same prefix, and give the wait a timeout",
    )


def _on_the_way_to_set(case: Case, waits_at: Frame | None) -> str:
    """The conditions in front of the call that sets a key in the same function, but for what decides who waits."""
    tree = case.sources.function(waits_at.file, waits_at.line) if waits_at is not None else None
    if tree is None or waits_at is None:
        return ""
    known = {g.place for g in guards(tree, waits_at.line)}
    file = file_name(waits_at.file)
    for line in store_sets(tree):
        told = [g for g in guards(tree, line) if g.kind in CONDITIONS and g.place not in known]
        if told:
            conditions = " and ".join(f"`{g.condition}` ({file}:{g.line})" for g in told[-2:])
            return f"; the call that sets one ({file}:{line}) stands behind {conditions}"
    return ""


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
                capital(
                    f"process {helper.pid}, which rank {rank} started at {place(case.activities[rank].where)}, runs "
                    f"the script again and has joined as another rank {rank}: it is at {place(frames[0])}; "
                    f"{wait_sentence(case, others)}."
                ),
                f"a spawned process imports the main script, and {place(frames[-1])} runs on import: "
                'nothing keeps it under `if __name__ == "__main__":`',
                'put the program under `if __name__ == "__main__":`',
            )
    return None


@cause("HD302", explains=SeparateMeetings, order=50)
def wrong_rendezvous(case: Case, blame: Blame[SeparateMeetings]) -> Finding | None:
    """HD302: ranks look for each other at different addresses."""
    places = blame.found.places
    told = ", ".join(f"{name_ranks(ranks)} at {where}" for where, ranks in places.items())
    line = place(case.activities[blame.culprits[0]].where)
    return Finding(
        "HD302",
        f"The ranks look for each other at different addresses{f' ({line})' if line else ''}: {told}.",
        "the ranks were told different places to meet, so they wait on different stores",
        "give every rank the same MASTER_ADDR and MASTER_PORT, or the same init_method",
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
            capital(f"{carried} and {name_ranks(absent)} by none; {wait_sentence(case, waiting)}."),
            f"the job was set up for {size} ranks (WORLD_SIZE), and {len(pids)} processes were told the same RANK",
            f"give each process a RANK of its own, from 0 to {size - 1}",
        )
    return Finding(
        "HD301",
        capital(
            f"{name_ranks(absent)} never joined: no process carries {verb(absent, 'it', 'them')}; "
            f"{wait_sentence(case, waiting)}."
        ),
        f"the job was set up for {size} ranks (WORLD_SIZE) and {len(present)} "
        f"{verb(tuple(present), 'was', 'were')} ever seen on this machine",
        f"start {name_ranks(absent)} as well, or set the world size to {len(present)}",
    )


@cause("HD304", explains=WaitingForNodes, order=410)
def waiting_for_nodes(case: Case, blame: Blame[WaitingForNodes]) -> Finding:
    """HD304: torchrun's agent is in the rendezvous and has started no rank."""
    return Finding(
        "HD304",
        f"torchrun waits in the rendezvous for other nodes (started with --nnodes {blame.found.nodes}); "
        "no rank has been started.",
        "the agent of this node has joined, and fewer nodes than it was told to expect have done the same",
        "start torchrun on the other nodes with the same --rdzv-endpoint and --rdzv-id, or lower --nnodes; check "
        "that they can reach the endpoint",
    )
