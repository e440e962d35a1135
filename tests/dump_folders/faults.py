"""What goes wrong in a job, and what dumps of it let anyone know.

Each fault edits the programs of a job. The truth beside it is about what can be *known*: where two ranks are left to
compare, either may be the culprit; where no start is recorded, a kernel that hangs looks like a rank that is late.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, replace

from dump_folders.programs import FAMILIES, LIBRARY, Job, collective
from dump_folders.simulator import Call, Compute, Die, FrameSpec, Group, Host, Step, Synchronize

_API = {
    "all_reduce_barrier": "barrier",
    "_all_gather_base": "all_gather_into_tensor",
    "_reduce_scatter_base": "reduce_scatter_tensor",
    "all_to_all": "all_to_all_single",
}
"""What a Python caller calls it."""
_ROOTED = frozenset({"broadcast", "reduce", "gather"})
INFINITE = float("inf")
Ranks = frozenset[int]


class NoPlace(Exception):
    """The job has no place for this fault: take another."""


@dataclass
class Damage:
    """What was done. ``kind`` decides what is knowable."""

    kind: str
    culprits: Ranks = frozenset()
    group: Group | None = None
    """Where the culprit parts from the others."""
    site: str = ""
    """The statement that it skips, adds or changes."""
    line: tuple[str, int] | None = None
    causes: frozenset[str | None] = frozenset()
    gone: Ranks = frozenset()
    """Ranks that leave no dump."""
    peers: Ranks = frozenset()
    """Of a message: who is at the other end."""
    second: str = ""
    """Of calls in the wrong order: the other statement."""
    iteration: int = -1
    rooted: bool = False
    """Its call has a root, which no dump names."""


LATE = frozenset({None, "HD501", "HD502", "HD503", "HD507", "HD508", "HD401"})
_PARTED = frozenset({"HD101", "HD109", "HD106"})
GONE = frozenset({None, "HD401", "HD402"})


@dataclass(frozen=True)
class _Place:
    rank: int
    at: int
    call: Call


def _places(job: Job, want: Callable[[Call], bool], *, low: float = 0.35, high: float = 0.8) -> list[_Place]:
    last = max(s.iteration for s in job.programs[0] if isinstance(s, Call))
    return [
        _Place(rank, at, step)
        for rank, steps in job.programs.items()
        for at, step in enumerate(steps)
        if isinstance(step, Call) and low * last <= step.iteration <= high * last and want(step)
    ]


def _pick(rng: random.Random, places: list[_Place]) -> _Place:
    if not places:
        raise NoPlace
    site = rng.choice(sorted({place.call.site for place in places}))
    return rng.choice([place for place in places if place.call.site == site])


def _collective(call: Call) -> bool:
    return not call.parts and not call.is_p2p


def _with_data(call: Call) -> bool:
    """A collective that has a tensor of the user's, of a size that all members share."""
    return _collective(call) and not call.uneven and call.op != "all_reduce_barrier"


def _line(call: Call, job: Job) -> tuple[str, int] | None:
    return next(((f[0], f[1]) for f in call.frames if f[0] == job.script), None)


def _statement(place: _Place, kind: str, job: Job, causes: frozenset[str | None]) -> Damage:
    call = place.call
    culprits = frozenset({place.rank})
    return Damage(kind, culprits, call.group, call.site, _line(call, job), causes, iteration=call.iteration)


def skip(job: Job, rng: random.Random) -> Damage:
    """A rank leaves one call out."""
    place = _pick(rng, _places(job, _collective))
    del job.programs[place.rank][place.at]
    causes = {"HD101", "HD109", "HD106"} | ({"HD111", "HD104"} if "bucket" in place.call.site else set())
    return _statement(place, "skip", job, frozenset(causes))


def _of_its_own(job: Job, rng: random.Random, near: Call, function: str, api: str) -> tuple[FrameSpec, ...]:
    """The stack of a call that only one rank makes, from the same loop as ``near``."""
    outer = tuple(frame for frame in near.frames if frame[0] == job.script)[1:]
    return (*LIBRARY[api], (job.script, rng.randint(230, 290), function), *outer)


def extra(job: Job, rng: random.Random) -> Damage:
    """A rank makes a call of its own that fits none of the others'."""
    place = _pick(rng, _places(job, lambda call: _collective(call) and not call.autograd))
    here, group = place.call, place.call.group
    api = rng.choice([api for api in ("barrier", "broadcast", "all_reduce", "all_gather") if api != here.op])
    function = rng.choice(("save_checkpoint", "log_metrics", "export", "dump_stats"))
    frames = _of_its_own(job, rng, here, function, api)
    call = collective(api, group, rng.randint(2, 50) * 40 + 8, place.rank, frames=frames)
    call = replace(call, site="extra", iteration=here.iteration)
    if call.kernel == here.kernel:
        raise NoPlace
    job.programs[place.rank][place.at : place.at] = [call, Synchronize()] if rng.random() < 0.5 else [call]
    return Damage("extra", frozenset({place.rank}), group, "extra", _line(call, job), _PARTED)


def silent_extra(job: Job, rng: random.Random) -> Damage:
    """A rank makes a call of its own that pairs with the others' next one."""
    place = _pick(rng, _places(job, lambda call: _collective(call) and not call.autograd))
    here = place.call
    function = rng.choice(("debug_print", "log_metrics", "refresh"))
    frames = _of_its_own(job, rng, here, function, _API.get(here.op, here.op))
    call = replace(here, site="extra", frames=frames, waits=True)
    job.programs[place.rank].insert(place.at, call)
    causes = frozenset({"HD101", "HD102", "HD109", "HD106"})
    return Damage("silent_extra", frozenset({place.rank}), here.group, "extra", _line(call, job), causes)


def swap(job: Job, rng: random.Random) -> Damage:
    """A rank makes two calls of one group in the other order."""
    found = []
    for place in _places(job, lambda call: _collective(call) and call.waits):
        following = _next_call(job.programs[place.rank], place.at, same=True)
        if following is not None and following[1].kernel != place.call.kernel:
            found.append(place)
    place = _pick(rng, found)
    damage = _statement(place, "swap", job, frozenset({"HD106"}))
    _exchange(job, place, damage, same=True)
    return damage


def order(job: Job, rng: random.Random) -> Damage:
    """A rank uses two groups in the other order."""
    wanted = _places(job, lambda call: _collective(call) and call.waits and len(call.group.members) > 1)
    place = _pick(rng, [p for p in wanted if _next_call(job.programs[p.rank], p.at, same=False) is not None])
    damage = _statement(place, "order", job, frozenset({"HD107"}))
    second = _exchange(job, place, damage, same=False)
    both = tuple(sorted(set(place.call.group.members) & set(second.group.members)))
    damage.group = replace(place.call.group, members=both)
    return damage


def _exchange(job: Job, place: _Place, damage: Damage, *, same: bool) -> Call:
    """Exchange the call with the next one, which is returned."""
    steps = job.programs[place.rank]
    found = _next_call(steps, place.at, same=same)
    assert found is not None
    at, second = found
    steps[place.at], steps[at] = second, place.call
    damage.second = second.site
    return second


def _next_call(steps: list[Step], at: int, *, same: bool) -> tuple[int, Call] | None:
    """The next call behind ``at``, if it is of the same group, or else of another that shares two ranks with it; None
    where the CPU waits before it."""
    here = steps[at]
    assert isinstance(here, Call)
    for number in range(at + 1, min(at + 8, len(steps))):
        step = steps[number]
        if isinstance(step, Synchronize):
            return None
        if isinstance(step, Call):
            shared = set(step.group.members) & set(here.group.members)
            right = step.group == here.group if same else step.group != here.group and len(shared) > 1
            return (number, step) if right and _collective(step) and step.waits else None
    return None


def size(job: Job, rng: random.Random) -> Damage:
    """A rank gives a tensor of another size."""
    shared = {"all_reduce", "broadcast", "_all_gather_base", "all_gather"}
    place = _pick(rng, _places(job, lambda call: _with_data(call) and call.size > 8 and call.op in shared))
    ratio = rng.choice((0.5, 2, 3))
    call = replace(place.call, inputs=_scaled(place.call.inputs, ratio), outputs=_scaled(place.call.outputs, ratio))
    job.programs[place.rank][place.at] = call
    return _statement(place, "size", job, frozenset({"HD104"}))


def _scaled(shapes: tuple[tuple[int, ...], ...], ratio: float) -> tuple[tuple[int, ...], ...]:
    return tuple((*shape[:-1], max(1, int(shape[-1] * ratio) + 1)) for shape in shapes)


def dtype(job: Job, rng: random.Random) -> Damage:
    """A rank gives another type."""
    place = _pick(rng, _places(job, lambda call: _with_data(call) and call.op != "gather"))
    other = {"Float": "BFloat16", "BFloat16": "Float", "Long": "Float", "Byte": "Long"}[place.call.dtype]
    job.programs[place.rank][place.at] = replace(place.call, dtype=other)
    return _statement(place, "dtype", job, frozenset({"HD104"}))


def operation(job: Job, rng: random.Random) -> Damage:
    """A rank makes another call in the place of one."""
    place = _pick(rng, _places(job, lambda call: _with_data(call) and not call.autograd))
    here = place.call
    api = rng.choice([api for api in ("broadcast", "all_reduce", "all_gather", "reduce") if api != here.op])
    numel = here.inputs[0][0]
    call = collective(api, here.group, numel, place.rank, dtype=here.dtype, frames=_renamed(here.frames, api))
    job.programs[place.rank][place.at] = replace(call, site=here.site + "_other", iteration=here.iteration)
    return _statement(place, "operation", job, frozenset({"HD106", "HD101", "HD109"}))


def _renamed(frames: tuple[tuple[str, int, str], ...], api: str) -> tuple[tuple[str, int, str], ...]:
    """Two lines below: the other branch of an ``if``."""
    users = [at for at, frame in enumerate(frames) if "site-packages" not in frame[0]]
    at = users[0] if users else 0
    return tuple(
        (f[0], f[1] + 2, f[2]) if number == at and users else ((f[0], f[1], api) if number == 0 else f)
        for number, f in enumerate(frames)
    )


def late(job: Job, rng: random.Random) -> Damage:
    """A rank's CPU hangs before a call: a data loader, a file system."""
    place = _pick(rng, _places(job, _collective))
    job.programs[place.rank][place.at : place.at] = [Host(INFINITE)]
    return _statement(place, "late", job, LATE)


def ended_early(job: Job, rng: random.Random) -> Damage:
    """A rank's data runs out before the others', and it goes on after the loop."""
    damage = _leave_loop(job, rng)
    damage.kind, damage.causes = "ended_early", frozenset({"HD102", "HD101", "HD106", "HD109"})
    return damage


def ended_for_good(job: Job, rng: random.Random) -> Damage:
    """A rank's data runs out, and nothing follows: it waits in its exit."""
    damage = _leave_loop(job, rng)
    rank = next(iter(damage.culprits))
    steps = job.programs[rank]
    job.programs[rank] = [s for s in steps if not (isinstance(s, Call) and s.site == "end")] + [Host(INFINITE)]
    damage.kind, damage.causes = "ended_for_good", LATE | {"HD102", "HD702"}
    return damage


def _leave_loop(job: Job, rng: random.Random) -> Damage:
    rank = rng.randrange(job.world)
    steps = job.programs[rank]
    iterations = sorted({s.iteration for s in steps if isinstance(s, Call) and s.site != "end"})
    stop = rng.choice(iterations[len(iterations) // 2 :])
    first = next(at for at, s in enumerate(steps) if isinstance(s, Call) and s.iteration == stop)
    end = next(at for at, s in enumerate(steps) if isinstance(s, Call) and s.site == "end")
    call = steps[first]
    assert isinstance(call, Call)
    del steps[first:end]
    return Damage("", frozenset({rank}), call.group, call.site, _line(call, job))


def one_more(job: Job, rng: random.Random) -> Damage:
    """A rank has one batch more than the others."""
    rank = rng.randrange(job.world)
    steps = job.programs[rank]
    end = next(at for at, s in enumerate(steps) if isinstance(s, Call) and s.site == "end")
    last = max(s.iteration for s in steps if isinstance(s, Call))
    first = next(at for at, s in enumerate(steps) if isinstance(s, Call) and s.iteration == last)
    again = steps[first:end]
    steps[end:end] = [replace(s, iteration=last + 1) if isinstance(s, Call) else s for s in again]
    call = again[0]
    assert isinstance(call, Call)
    causes = frozenset({"HD102", "HD101", "HD106", "HD109"})
    return Damage("one_more", frozenset({rank}), call.group, call.site, _line(call, job), causes)


def crash(job: Job, rng: random.Random) -> Damage:
    """A rank dies, and leaves no dump."""
    place = _pick(rng, _places(job, _collective))
    job.programs[place.rank][place.at : place.at] = [Die()]
    damage = _statement(place, "crash", job, GONE)
    damage.gone = damage.culprits
    return damage


def unseen(job: Job, rng: random.Random) -> Damage:
    """The culprit's dump is lost."""
    damage = rng.choice((skip, late, size, extra))(job, rng)
    damage.kind, damage.causes, damage.gone = "unseen", GONE, damage.culprits
    return damage


def witness_gone(job: Job, rng: random.Random) -> Damage:
    """The dump of an innocent rank is lost, or those of an innocent host."""
    if job.world < 4:
        raise NoPlace
    damage = rng.choice((skip, late, size, extra, dtype))(job, rng)
    lost = rng.choice([rank for rank in range(job.world) if rank not in damage.culprits])
    of_host = {lost, lost ^ 1} - damage.culprits if rng.random() < 0.4 and job.world > 4 else {lost}
    damage.gone = frozenset(of_host & set(range(job.world)))
    return damage


def kernel_stuck(job: Job, rng: random.Random) -> Damage:
    """All started a call, and it never ends: a link, a driver."""
    place = _pick(rng, _places(job, _collective))
    for member in place.call.group.members:
        for at, step in enumerate(job.programs[member]):
            if isinstance(step, Call) and (step.site, step.iteration, step.group) == (
                place.call.site, place.call.iteration, place.call.group
            ):  # fmt: skip
                job.programs[member][at] = replace(step, stuck=True)
    damage = _statement(place, "kernel_stuck", job, frozenset({"HD602"}))
    damage.culprits, damage.rooted = frozenset(), place.call.op in _ROOTED
    return damage


def root(job: Job, rng: random.Random) -> Damage:
    """A rank names another root. Recorders do not keep it: all arrived, as far as anyone can see."""
    place = _pick(rng, _places(job, lambda call: call.op in _ROOTED - {"gather"}))
    job.programs[place.rank][place.at] = replace(place.call, root=place.call.root + 1)
    return _statement(place, "root", job, frozenset({"HD602", "HD105", None}))


def threads(job: Job, rng: random.Random) -> Damage:
    """A second thread of every rank uses the group of the first; on one rank it comes earlier."""
    place = _pick(rng, _places(job, lambda call: _collective(call) and call.waits and not call.autograd))
    here = place.call
    numel = rng.randint(2, 90) * 24
    for rank in here.group.members:
        steps = job.programs[rank]
        at = [
            n
            for n, s in enumerate(steps)
            if isinstance(s, Call) and (s.site, s.iteration) == (here.site, here.iteration)
        ]
        frames = (*LIBRARY["all_gather"], (job.script, 288, "upload"), ("/usr/lib/python3.11/threading.py", 982, "run"))
        call = collective("all_gather", here.group, numel, rank, dtype="Long", frames=frames)
        call = replace(call, thread="uploader", site="upload", iteration=here.iteration, waits=False)
        if len(at) != 1 or call.kernel == here.kernel:
            raise NoPlace
        steps.insert(at[0] if rank == place.rank else at[0] + 1, call)
    damage = _statement(place, "threads", job, frozenset({"HD108"}))
    damage.second = "upload"
    return damage


def gpu_stuck(job: Job, rng: random.Random) -> Damage:
    """A kernel of one rank's own never ends: a dead GPU, a loop in a kernel."""
    place = _pick(rng, _places(job, _collective))
    job.programs[place.rank][place.at : place.at] = [Compute(1.0, stuck=True)]
    return _statement(place, "gpu_stuck", job, frozenset({None, "HD602", "HD501"}))


def no_send(job: Job, rng: random.Random) -> Damage:
    """A stage sends one message fewer than the next one expects."""
    place = _pick(rng, _places(job, lambda call: call.is_p2p and _ops(call) == {"send"}))
    del job.programs[place.rank][place.at]
    return _of_message(place, "no_send", job)


def extra_recv(job: Job, rng: random.Random) -> Damage:
    """A stage expects one message more than it is sent."""
    place = _pick(rng, _places(job, lambda call: call.is_p2p and _ops(call) == {"recv"}))
    job.programs[place.rank].insert(place.at, place.call)
    return _of_message(place, "extra_recv", job)


def wrong_peer(job: Job, rng: random.Random) -> Damage:
    """A stage sends to the wrong rank."""
    places = _places(job, lambda call: call.is_p2p and _ops(call) == {"send"} and len(call.group.members) > 2)
    place = _pick(rng, places)
    call, members = place.call, place.call.group.members
    old = call.parts[0].peer if call.parts else call.peer
    peer = rng.choice([member for member in members if member not in {place.rank, old}])
    parts = tuple(replace(part, peer=peer) for part in call.parts)
    job.programs[place.rank][place.at] = replace(call, parts=parts, peer=-1 if parts else peer)
    return _of_message(place, "wrong_peer", job)


def fewer_rounds(job: Job, rng: random.Random) -> Damage:
    """One replica of a pipeline runs fewer micro-batches than the others, or one more."""
    pipes = [group for group in job.groups if group.desc == "mesh_pp"]
    if job.family != "replicas" or not pipes:
        raise NoPlace
    culprits = frozenset(rng.choice(pipes).members)
    place = _pick(rng, _places(job, lambda call: call.site == "scatter"))
    here, once_more = place.call, rng.random() < 0.3
    for rank in culprits:
        steps = job.programs[rank]
        mine = [at for at, s in enumerate(steps) if isinstance(s, Call) and s.iteration == here.iteration]
        ends = [at for at in mine if steps[at].site == "scatter"]  # type: ignore[union-attr]
        first = ends[-2] + 1
        if once_more:
            steps[first:first] = steps[first : ends[-1] + 1]
        else:
            del steps[first : ends[-1] + 1]
    line = _line(here, job)
    causes = frozenset({"HD102", "HD101"})
    return Damage("fewer_rounds", culprits, here.group, here.site, line, causes, iteration=here.iteration)


def all_send_first(job: Job, rng: random.Random) -> Damage:
    """Every rank of a ring sends first."""
    if job.family != "ring" or job.world < 2:
        raise NoPlace
    place = _pick(rng, _places(job, lambda call: call.op == "send"))
    for rank in range(1, job.world, 2):
        steps = job.programs[rank]
        of_round = [at for at, s in enumerate(steps) if isinstance(s, Call) and s.is_p2p
                    and s.iteration == place.call.iteration]  # fmt: skip
        first, second = of_round
        steps[first], steps[second] = steps[second], steps[first]
    damage = _statement(place, "all_send_first", job, frozenset({"HD201"}))
    damage.culprits = frozenset(range(job.world))
    return damage


def _ops(call: Call) -> set[str]:
    return {part.op for part in call.parts or (call,)}


def _of_message(place: _Place, kind: str, job: Job) -> Damage:
    damage = _statement(place, kind, job, frozenset({"HD202"}))
    damage.peers = frozenset(part.peer for part in place.call.parts or (place.call,))
    return damage


def two(job: Job, rng: random.Random) -> Damage:
    """Two faults at once, in groups that do not meet."""
    groups = {step.group for step in job.programs[0] if isinstance(step, Call) and step.group.desc == "mesh_tp"}
    if job.family != "tp_dp" or not groups:
        raise NoPlace
    tensor = [group for group in job.groups if group.desc == "mesh_tp"]
    if len(tensor) < 3 and len(tensor[0].members) < 3:
        raise NoPlace
    first, second = rng.sample(tensor, 2)
    places = _places(job, lambda call: _collective(call) and call.group == first)
    one = _pick(rng, places)
    # The same statement of the same round: else one of them keeps the other's ranks from getting there.
    others = [p for p in _places(job, lambda call: _collective(call) and call.group == second)
              if (p.call.site, p.call.iteration) == (one.call.site, one.call.iteration)]  # fmt: skip
    other = _pick(rng, others)
    found = []
    for place in (one, other):
        kind = rng.choice(("size", "late", "skip"))
        steps = job.programs[place.rank]
        if kind == "size":
            steps[place.at] = replace(
                place.call, inputs=_scaled(place.call.inputs, 2), outputs=_scaled(place.call.outputs, 2)
            )
        elif kind == "late":
            steps[place.at : place.at] = [Host(INFINITE)]
        else:
            del steps[place.at]
        causes = {"size": frozenset({"HD104"}), "late": LATE, "skip": _PARTED | {"HD104"}}[kind]
        found.append(_statement(place, kind, job, causes))
    both = found[0].culprits | found[1].culprits
    return Damage("two", both, first, one.call.site, found[0].line, found[0].causes | found[1].causes)


def nothing(job: Job, rng: random.Random) -> Damage:
    """A healthy job."""
    return Damage("nothing")


_ALL = (
    *(skip, extra, silent_extra, swap, order, size, dtype, operation, root, threads),
    *(late, ended_early, ended_for_good, one_more, crash, unseen, witness_gone, kernel_stuck, gpu_stuck),
    *(no_send, extra_recv, wrong_peer, all_send_first, two, fewer_rounds),
)
FAULTS: dict[str, Callable[[Job, random.Random], Damage]] = {fault.__name__: fault for fault in _ALL}
MESSAGES = {"no_send", "extra_recv", "wrong_peer", "all_send_first"}


def families_for(fault: str) -> list[str]:
    """Families that have a place for it."""
    if fault == "all_send_first":
        return ["ring"]
    if fault == "two":
        return ["tp_dp"]
    if fault == "fewer_rounds":
        return ["replicas"]
    if fault == "order":
        return ["script", "tp_dp", "moe"]
    if fault in MESSAGES:
        return ["pipeline", "pipeline_batched", "mesh3d", "replicas"] + (["ring"] if fault != "wrong_peer" else [])
    if fault == "swap":
        return ["loop", "script", "checkpoint", "ddp_eval", "tp_dp"]
    return list(FAMILIES)
