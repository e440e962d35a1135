"""HD3xx: starting up."""

from __future__ import annotations

from hangdoc.diagnosis.blame.foreign_store import ForeignStore
from hangdoc.diagnosis.blame.group_creation import LOCAL
from hangdoc.diagnosis.blame.launcher import WaitingForNodes
from hangdoc.diagnosis.blame.shared_number import SHARED
from hangdoc.diagnosis.calls.history import Token
from hangdoc.diagnosis.causes.addresses import what_set_them
from hangdoc.diagnosis.causes.call_conditions import start_of_ranks
from hangdoc.diagnosis.causes.deciding import what_decided
from hangdoc.diagnosis.causes.finding import Finding, others_of, telling
from hangdoc.diagnosis.causes.looked_up import looked_up_on_one_side
from hangdoc.diagnosis.causes.phrases import at, cited, doing, line_of, place, where_they_wait
from hangdoc.diagnosis.causes.polled import set_elsewhere
from hangdoc.diagnosis.causes.registry import cause
from hangdoc.diagnosis.condition.elsewhere.made_groups import around_group, made_once, made_under_condition
from hangdoc.diagnosis.context import Case
from hangdoc.diagnosis.explanation import Blame, Diverged, Explanation, OutsideWait, SeparateMeetings
from hangdoc.diagnosis.frames.landmarks import Role, below_user, has_role, is_implicit, plain
from hangdoc.diagnosis.frames.names import names
from hangdoc.diagnosis.frames.stacks import fork, user_stack
from hangdoc.diagnosis.source.guards import CONDITIONS, guards
from hangdoc.diagnosis.source.queries import store_sets
from hangdoc.diagnosis.state.activity import waits_for_a_key
from hangdoc.diagnosis.state.store_keys import free_ranks
from hangdoc.model.kinds import ActivityKind
from hangdoc.model.message import Condition, Does, Joined, Message, Place, Ranks, Verb, joined, sentence
from hangdoc.model.process import Frame

_OF_ALL = "new_group is a collective of all ranks of the job, also of those that will not be members"
_CALL_IT_ON_ALL = "call new_group on every rank, in the same order, and use the group only on its members"


def _makes_groups(frame: Frame) -> bool:
    return plain(frame.function) in names("makes_group")


@cause("HD303", explains=Diverged, order=70)
def new_group_not_by_all(case: Case, blame: Blame[Diverged]) -> Finding | None:
    """HD303: new_group called by some ranks only, or a different number of times."""
    gap = blame.found.gap
    if gap is None or not (gap.token.op == "new_group" or any(_makes_groups(f) for f in gap.token.stack)):
        return None
    if is_implicit(gap.token.stack) and not has_role(gap.token.stack, Role.GROUPS):
        return None  # who wrote that line asked for no group
    culprits, others = blame.culprits, others_of(case, blame)
    if gap.kind == "delete" and gap.mine and gap.theirs and gap.mine.op == gap.theirs.op == "new_group":
        here, there = telling(gap)
        # Of a group that a rank is no member of, its journal says nothing.
        history = blame.found.alignment.history
        seen = tuple(r for r in others if history.at(r, gap.token.sequence) is not None)
        return _unlike_groups(case, blame, [(gap.mine, here, culprits), (gap.theirs, there, seen or others)])
    if gap.token.group[0] == SHARED:
        return _under_one_number(case, blame, gap.token)
    callers, missing = (culprits, others) if gap.kind == "delete" else (others, culprits)
    if gap.kind == "insert" and gap.mine is not None and gap.mine.site == gap.token.site and gap.token.sizes:
        return _left_out(case, gap.mine, gap.token, callers, missing)
    return _made_by_some(case, blame, gap.token, callers, missing)


def _under_one_number(case: Case, blame: Blame[Diverged], token: Token) -> Finding:
    """HD303 of two groups with one number, of different members."""
    other = blame.alternatives[0]
    taken: Message = [
        ["on ", Ranks(other), " the same number belongs to a group of ", Ranks(other), ": "],
        "the two share their keys in the store, and find the wrong partners there",
    ]
    return Finding(
        "HD303",
        sentence(
            [
                ["only ", Does(blame.culprits, "has", "have"), " made the process group of ", Ranks(blame.culprits)],
                at(token.frame),
            ],
            "its first call does not complete, though all its members are in it",
        ),
        joined(what_decided(case, blame), _OF_ALL, taken),
        _CALL_IT_ON_ALL,
    )


def _maker(token: Token) -> str:
    """What the user's line calls to make a group: 'new_group', or a function that makes several."""
    below = below_user(token.stack)
    made = has_role(token.stack, Role.GROUPS) and not any(_makes_groups(frame) for frame in below[-2:])
    return plain(below[-1].function) if made and len(below) < len(token.stack) else "new_group"


def _made_by_some(
    case: Case, blame: Blame[Diverged], token: Token, callers: tuple[int, ...], missing: tuple[int, ...]
) -> Finding:
    """HD303 of ``callers`` that make a group in ``token``, and ``missing`` that are elsewhere."""
    frame, maker = token.frame, _maker(token)
    decided = what_decided(case, blame)
    now = case.activities[missing[0]].stack if missing and frame is None else ()
    skipped = made_under_condition(case.sources, now)
    where = skipped[1] if skipped is not None else None
    if skipped is not None and not decided:
        decided = joined(["of the calls before it, the one at ", skipped[0], " depends on ", skipped[1]], _OF_ALL)
    over = _items_of_group(case, blame, token)
    if over is not None:
        first = cited(blame.found.branch_points[0].guard, blame.found.branch_points[0].file)
        goes: Message = [over, " may go over other items on ", Ranks(missing), " than on ", Ranks(callers)]
        once: Message = [", or ", first, " was decided otherwise there"] if first != over else ""
        where, decided = over, joined([goes, once], _OF_ALL)
    mine = blame.found.gap.mine if blame.found.gap is not None and not decided else None
    sides = (mine.stack if mine is not None else (), token.stack)
    looked_up = looked_up_on_one_side(case.sources, sides, (missing, callers))
    if looked_up is not None:
        where, decided = looked_up[1], joined(looked_up[0], _OF_ALL)
    return Finding(
        "HD303",
        sentence(
            ["only ", Does(callers, "calls", "call"), f" {maker}", at(frame)]
            if frame is not None
            else [Does(callers, "has", "have"), " made a process group that ", Ranks(missing), " did not make"],
            [Does(missing, "is", "are"), " in ", doing(case.activities[missing[0]])] if missing else "",
        ),
        decided or _OF_ALL if maker == "new_group" else joined(f"{maker} makes process groups, and {_OF_ALL}", decided),
        _CALL_IT_ON_ALL
        if maker == "new_group"
        else ["call ", maker, at(frame), " on every rank of the job, with the same arguments"],
        ("which items the loop went over on each rank was not seen" if over is not None else "")
        if looked_up is None
        else "what it looked up on the others was not seen",
        decided_at=where,
    )


def _items_of_group(case: Case, blame: Blame[Diverged], token: Token) -> Condition | None:
    """The loop whose items the group is made for, where all have left it since, or the condition that was found only
    asks whether the group is there yet, which says nothing of the group itself; else None.

    Example: `for domain in sorted(seen): ⏎ groups.get(MEMBERS[domain])`, whose get() makes a group under `if key not in
    self._groups:`, as it does for the culprits' own group → the loop.
    """
    points = blame.found.branch_points
    if points and points[0].uneven and points[0].guarded == 1 and not token.pending:
        return cited(points[0].guard, points[0].file)
    if not points or not made_once(points[0].guard) or points[0].differs or points[0].seen:
        return None
    mine = blame.found.gap.mine if blame.found.gap is not None else None
    apart = fork(mine.stack, token.stack, frames_of=user_stack).theirs if mine is not None else ()
    for frame in reversed(apart):
        tree = case.sources.function(frame.file, frame.line)
        loops = [guard for guard in guards(tree, frame.line) if guard.kind == "loop"] if tree is not None else []
        shared = {(f.file, f.function) for f in user_stack(mine.stack)} if mine is not None else set()
        if loops and (frame.file, frame.function) not in shared:
            return cited(loops[-1], frame.file)
    return None


def _left_out(
    case: Case, mine: Token, token: Token, callers: tuple[int, ...], missing: tuple[int, ...]
) -> Finding | None:
    """HD303 of a line that makes several groups: ``missing`` left out the one that ``callers`` made in ``token``, and
    make the next one, in ``mine``.

    Example: `if members not in known and rank in members: ⏎ known[members] = new_group(members)`.
    """
    made = token.sizes[0] if token.sizes else ()
    deciding = around_group(case.sources, token.stack)
    now: Message = [Does(missing, "is", "are"), " in ", doing(case.activities[missing[0]])] if missing else ""
    next_one = mine.sizes[0] if mine.sizes else ()
    return Finding(
        "HD303",
        sentence(
            [["only ", Does(callers, "has", "have"), " made the process group of ", Ranks(made)], at(token.frame)],
            [now, [", for the group of ", Ranks(next_one)] if next_one and mine.pending else ""] if now else "",
        ),
        joined(["whether a rank makes it depends on ", deciding] if deciding is not None else "", _OF_ALL),
        _CALL_IT_ON_ALL,
        decided_at=deciding,
    )


_BY_MEMBERS = (
    "with `use_local_synchronization=True`, torch names a group after its members and the number of groups that the "
    "rank has made before, so its members wait for each other under different names"
)
_SAME_NUMBER = (
    "let all members of a group make equally many groups before it, or leave `use_local_synchronization` out and call "
    "new_group on every rank, in the same order"
)


def _is_by_members(blame: Blame[Diverged]) -> bool:
    gap = blame.found.gap
    return gap is not None and gap.token.group[0] == LOCAL


def _unlike_groups(
    case: Case, blame: Blame[Diverged], making: list[tuple[Token, Frame | None, tuple[int, ...]]]
) -> Finding:
    """HD303 of two sides that are both in new_group, and make different groups. ``making``: of each side its call, the
    line to show and its ranks."""
    groups: list[Message] = [
        [
            [Does(ranks, "makes", "make"), " a process group"],
            [" of ", Ranks(token.sizes[0])] if token.sizes and token.sizes[0] else "",
            at(frame),
        ]
        for token, frame, ranks in making
    ]
    if _is_by_members(blame):
        (_, frame, more), (_, _, less) = making
        return Finding(
            "HD303",
            sentence([Ranks(more), " made a process group that ", Ranks(less), " did not make", at(frame)]),
            joined(what_decided(case, blame), _BY_MEMBERS),
            _SAME_NUMBER,
        )
    unlike = len({token.sizes for token, _, _ in making}) > 1
    return Finding(
        "HD303",
        sentence(Joined(groups, " where "), "the groups are not the same"),
        what_decided(case, blame)
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
    free = free_ranks(case.activities)
    nobody: Message = (
        [Does(free, "waits", "wait"), " for no rank, and may yet set it"] if free else "no rank is on its way to set it"
    )
    return Finding(
        "HD305",
        sentence(
            [
                [
                    Does(waiting, "waits", "wait"),
                    " for a store key that ",
                    "is not set" if free else "nobody sets",
                    ": ",
                ],
                [first.text, " at ", place(first.where)],
            ],
            where_they_wait(case, others_of(case, blame)),
        ),
        Joined([nobody, _on_the_way_to_set(case, blame, first.where)]),
        "set the key before anybody waits for it, under the same prefix, and give the wait a timeout",
    )


def _on_the_way_to_set(case: Case, blame: Blame[OutsideWait], waits_at: Frame | None) -> Message:
    """The conditions around the call that sets a key, in the same function, without those around the wait itself, or
    else in another one."""
    tree = case.sources.function(waits_at.file, waits_at.line) if waits_at is not None else None
    if tree is None or waits_at is None:
        return ""
    known = {g.place for g in guards(tree, waits_at.line)}
    for line in store_sets(tree):
        deciding = [g for g in guards(tree, line) if g.kind in CONDITIONS and g.place not in known]
        if deciding:
            conditions = Joined([cited(g, waits_at.file) for g in deciding[-2:]], " and ")
            return ["the call that sets one (", Place(waits_at.file, line), ") depends on ", conditions]
    # Of alternatives it is told anyway what parted them.
    at, under = (set_elsewhere(case.sources, waits_at) if not blame.alternatives else None) or (None, [])
    return ["the call that sets one (", line_of(at), ") depends on ", Joined(under, " and ")] if under else ""


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
        f"give this job a MASTER_PORT of its own{f', or end process {server.pid}' if server.pid is not None else ''}",
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
        f"give this job a MASTER_PORT of its own, or end the process that has the port "
        f"(`ss -ltnp 'sport = :{found.port}'` names it)",
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
            f"the job was set up for {size} ranks (WORLD_SIZE), and {len(pids)} processes were given the same RANK",
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
                f"the job was set up for {size} ranks (WORLD_SIZE) and {len(present)} ",
                [Verb(tuple(present), "was", "were"), " ever seen on this machine"],
            ],
            started.text if started is not None else "",
        ),
        ["start ", Ranks(absent), f" as well, or set the world size to {len(present)}"],
        decided_at=decided[-1] if decided else None,
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
