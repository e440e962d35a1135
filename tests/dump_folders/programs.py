"""What healthy jobs do: the calls of each rank, with the stacks that torch would record for them."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field

from dump_folders.simulator import AUTOGRAD, Call, Compute, FrameSpec, Group, Host, Join, Shape, Step, Synchronize

MAIN = "python"
TORCH = "/usr/local/lib/python3.11/site-packages/torch"
C10D = f"{TORCH}/distributed/distributed_c10d.py"
LIBRARY: dict[str, tuple[FrameSpec, ...]] = {
    name: ((C10D, line, name), (f"{TORCH}/distributed/c10d_logger.py", 83, "wrapper"))
    for name, line in {
        "all_reduce": 2935, "broadcast": 2771, "barrier": 4818, "all_gather": 3706, "gather": 3985, "send": 2403,
        "recv": 2443, "all_to_all_single": 4578, "reduce_scatter_tensor": 4410, "all_gather_into_tensor": 3819,
        "batch_isend_irecv": 2689, "all_gather_object": 3017, "gather_object": 3112, "broadcast_object_list": 3541,
        "reduce": 3002,
    }.items()
}  # fmt: skip
_NAMES = ("train_step", "run_step", "do_step", "step", "fit_batch", "one_iteration")
_OUTER = ("train", "fit", "run", "loop", "pretrain")
_FILES = ("train.py", "main.py", "run_train.py", "pretrain_gpt.py", "finetune.py", "src/trainer.py")


@dataclass
class Job:
    """Programs of all ranks. ``tags`` name what a fault may aim at."""

    family: str
    world: int
    groups: list[Group]
    programs: dict[int, list[Step]] = field(default_factory=dict)
    script: str = ""


class Writer:
    """Writes the program of a job: all ranks at once, statement by statement."""

    def __init__(self, rng: random.Random, family: str, world: int) -> None:
        self.rng = rng
        folder = rng.choice(("/workspace", "/home/alice/project", "/mnt/code/llm", "/app"))
        self.script = f"{folder}/{rng.choice(_FILES)}"
        everyone = tuple(range(world))
        self.default = Group("0", "default_pg", everyone)
        self.job = Job(family, world, [self.default], {rank: [] for rank in everyone}, self.script)
        self.line = rng.randint(20, 60)
        self.iteration = -1
        self._step_name, self._outer_name = rng.choice(_NAMES), rng.choice(_OUTER)
        self._outer_line = rng.randint(300, 400)
        self._main_line = rng.randint(420, 500)
        self._lines: dict[str, int] = {}

    @property
    def ranks(self) -> range:
        return range(self.job.world)

    def group(self, desc: str, members: tuple[int, ...]) -> Group:
        """Another process group; all ranks count the groups, so its name is the same everywhere."""
        found = Group(str(len(self.job.groups)), desc, members)
        self.job.groups.append(found)
        return found

    def mesh(self, desc: str, lists: list[tuple[int, ...]]) -> dict[int, Group]:
        """One group for each list; by member."""
        return {rank: group for members in lists for group in [self.group(desc, members)] for rank in members}

    def line_of(self, site: str) -> int:
        """The user's line of a statement: in the order in which they were first met."""
        if site not in self._lines:
            self.line += self.rng.randint(1, 9)
            self._lines[site] = self.line
        return self._lines[site]

    def frames(
        self, site: str, api: str, function: str = "", *, library: tuple[FrameSpec, ...] = ()
    ) -> tuple[FrameSpec, ...]:
        """Innermost first: torch's own, the user's function, its callers."""
        head = library or LIBRARY.get(api, ())
        function = function or self._step_name
        return (
            *head,
            (self.script, self.line_of(site), function),
            (self.script, self._outer_line, self._outer_name),
            (self.script, self._main_line, "main"),
            (self.script, self._main_line + 6, "<module>"),
        )

    def add(self, rank: int, *steps: Step) -> None:
        self.job.programs[rank].extend(steps)

    def all(self, make: Callable[[int], Step | None]) -> None:
        for rank in self.ranks:
            step = make(rank)
            if step is not None:
                self.add(rank, step)

    # --- statements ------------------------------------------------------------------------------------------------

    def host(self, seconds: float) -> None:
        self.all(lambda rank: Host(seconds * self.rng.uniform(0.8, 1.2)))

    def compute(self, seconds: float) -> None:
        self.all(lambda rank: Compute(seconds * self.rng.uniform(0.9, 1.1)))

    def synchronize(self) -> None:
        self.all(lambda rank: Synchronize())

    def join(self) -> None:
        self.all(lambda rank: Join())

    def collective(
        self,
        site: str,
        api: str,
        groups: Group | dict[int, Group],
        numel: int,
        *,
        dtype: str = "Float",
        function: str = "",
        autograd: bool = False,
        waits: bool = True,
        library: tuple[FrameSpec, ...] = (),
        bare: bool = False,
        root: int = 0,
    ) -> None:
        """One statement that every rank runs, each in its own group."""
        for rank in self.ranks:
            group = groups if isinstance(groups, Group) else groups.get(rank)
            if group is not None and rank in group.members:
                frames = () if bare else self.frames(site, api, function, library=library)
                call = collective(api, group, numel, rank, dtype=dtype, frames=frames, root=root)
                self.add(
                    rank,
                    _with(
                        call, thread=AUTOGRAD if autograd else MAIN, waits=waits, site=site, iteration=self.iteration
                    ),
                )


def _with(call: Call, **changes: object) -> Call:
    from dataclasses import replace

    return replace(call, **changes)  # type: ignore[arg-type]


def collective(
    api: str,
    group: Group,
    numel: int,
    rank: int,
    *,
    dtype: str = "Float",
    frames: tuple[FrameSpec, ...] = (),
    root: int = 0,
) -> Call:
    """The call that NCCL's process group records for ``api`` on a tensor of ``numel`` elements."""
    size = len(group.members)
    one: tuple[Shape, ...] = ((numel,),)
    times: tuple[Shape, ...] = ((numel * size,),)
    if api == "barrier":
        return Call("all_reduce_barrier", group, ((1,),), ((1,),), "Float", frames)
    if api in {"all_reduce", "broadcast", "reduce"}:
        return Call(api, group, one, one, dtype, frames)
    if api == "all_gather":
        return Call(api, group, one, ((size, numel),), dtype, frames)
    if api == "all_gather_into_tensor":
        return Call("_all_gather_base", group, one, times, dtype, frames)
    if api == "reduce_scatter_tensor":
        return Call("_reduce_scatter_base", group, times, one, dtype, frames)
    if api == "gather":
        return Call(api, group, one, one if rank == group.members[root] else ((0,),), dtype, frames)
    raise ValueError(api)


# --- families ------------------------------------------------------------------------------------------------------


def _ddp_frames(w: Writer, site: str, name: str, line: int) -> tuple[FrameSpec, ...]:
    return w.frames(site, "", library=((f"{TORCH}/nn/parallel/distributed.py", line, name),))


def _wrap_ddp(w: Writer, group: Group | dict[int, Group], numel: int) -> None:
    """DDP's constructor: shapes are compared, parameters are sent out."""
    verify = ((f"{TORCH}/distributed/utils.py", 281, "_verify_param_shape_across_processes"),
              (f"{TORCH}/nn/parallel/distributed.py", 839, "__init__"))  # fmt: skip
    send = ((f"{TORCH}/distributed/utils.py", 322, "_sync_module_states"),
            (f"{TORCH}/nn/parallel/distributed.py", 844, "__init__"))  # fmt: skip
    w.collective("wrap", "all_gather", group, 1, dtype="Long", function="build", library=verify)
    w.collective("wrap", "broadcast", group, numel, function="build", library=send)


def _backward(w: Writer, groups: Group | dict[int, Group], buckets: list[int]) -> None:
    """Gradient buckets, from the autograd engine's thread: no Python frame is on its stack."""
    for at, numel in enumerate(buckets):
        w.compute(0.02)
        w.collective(f"bucket{at}", "all_reduce", groups, numel, autograd=True, waits=False, bare=True)
    w.join()


def ddp(rng: random.Random, *, evaluation: bool = False) -> Job:
    """DistributedDataParallel with gradient buckets; a loss that is averaged and read now and then."""
    w = Writer(rng, "ddp_eval" if evaluation else "ddp", rng.choice((2, 3, 4, 4, 6, 8, 8)))
    buckets = [rng.randint(100, 4000) * 64 for _ in range(rng.randint(2, 4))]
    buffers = rng.random() < 0.4
    every, rounds = rng.randint(2, 5), rng.randint(10, 18)
    _wrap_ddp(w, w.default, sum(buckets))
    for w.iteration in range(rounds):
        w.host(0.05)
        if buffers:
            forward = ((f"{TORCH}/nn/parallel/distributed.py", 2158, "_default_broadcast_coalesced"),
                       (f"{TORCH}/nn/parallel/distributed.py", 1636, "forward"))  # fmt: skip
            w.collective("forward", "broadcast", w.default, 512, library=forward)
        w.compute(0.1)
        _backward(w, w.default, buckets)
        w.compute(0.03)
        if w.iteration % every == every - 1:
            w.collective("log_loss", "all_reduce", w.default, 1, function="log_loss")
            w.synchronize()
        if evaluation and w.iteration % 6 == 5:
            for _ in range(3):
                w.compute(0.05)
                w.collective("evaluate", "all_gather", w.default, 256, function="evaluate")
            w.synchronize()
            w.collective("evaluated", "barrier", w.default, 1, function="evaluate")
    w.collective("end", "barrier", w.default, 1, function="main_end")
    w.synchronize()
    return w.job


def ddp_eval(rng: random.Random) -> Job:
    """With an evaluation that gathers predictions."""
    return ddp(rng, evaluation=True)


def fsdp(rng: random.Random) -> Job:
    """Fully sharded: gather a layer's weights ahead of its use, scatter its gradients behind."""
    w = Writer(rng, "fsdp", rng.choice((2, 4, 4, 8)))
    two = rng.random() < 0.5
    gathers = w.group("mesh_fsdp", w.default.members)
    scatters = w.group("reduce_scatter", w.default.members) if two else gathers
    layers = [rng.randint(50, 900) * 128 for _ in range(rng.randint(2, 3))]
    rounds = rng.randint(7, 11)
    lib = f"{TORCH}/distributed/fsdp"
    gather = (
        (f"{lib}/_flat_param.py", 1455, "_all_gather_flat_param"),
        (f"{lib}/_runtime_utils.py", 401, "_pre_forward"),
    )
    again = (
        (f"{lib}/_flat_param.py", 1455, "_all_gather_flat_param"),
        (f"{lib}/_runtime_utils.py", 653, "_pre_backward_hook"),
    )
    scatter = ((C10D, 4410, "reduce_scatter_tensor"), (f"{lib}/_runtime_utils.py", 838, "_reduce_grad"),
               (f"{lib}/_runtime_utils.py", 726, "_post_backward_hook"))  # fmt: skip
    w.collective("start", "broadcast", w.default, 64, dtype="Long", function="build")
    for w.iteration in range(rounds):
        w.host(0.04)
        for at, numel in enumerate(layers):
            w.collective(f"gather{at}", "all_gather_into_tensor", gathers, numel, dtype="BFloat16", waits=False,
                         library=gather)  # fmt: skip
            w.join()
            w.compute(0.06)
        for at, numel in reversed(list(enumerate(layers))):
            if at != len(layers) - 1:
                _hook(w, f"regather{at}", "all_gather_into_tensor", gathers, numel, again)
                w.join()
            w.compute(0.08)
            _hook(w, f"scatter{at}", "reduce_scatter_tensor", scatters, numel, scatter)
        w.join()
        w.collective("clip", "all_reduce", w.default, 1, function="clip_grad_norm")
        if w.iteration % 3 == 2:
            w.synchronize()
    w.collective("end", "barrier", w.default, 1, function="main_end")
    w.synchronize()
    return w.job


def _hook(w: Writer, site: str, api: str, group: Group, numel: int, frames: tuple[FrameSpec, ...]) -> None:
    """A call from a hook in the autograd engine's thread: its stack ends with the hook."""
    for rank in group.members:
        call = collective(api, group, numel, rank, dtype="BFloat16", frames=frames)
        w.add(rank, _with(call, thread=AUTOGRAD, waits=False, site=site, iteration=w.iteration))


def tp_dp(
    rng: random.Random, shapes: tuple[tuple[int, int], ...] = ((2, 2), (2, 4), (4, 2), (4, 4), (2, 3), (4, 3))
) -> Job:
    """Tensor parallel within, data parallel across: a two-dimensional mesh. ``shapes``: (tensor, data) to draw from."""
    tp, dp = rng.choice(shapes)
    w = Writer(rng, "tp_dp", tp * dp)
    data = w.mesh("mesh_dp", [tuple(range(at, tp * dp, tp)) for at in range(tp)])
    tensor = w.mesh("mesh_tp", [tuple(range(at * tp, at * tp + tp)) for at in range(dp)])
    layers, rounds, balanced = rng.randint(1, 3), rng.randint(5, 9), rng.random() < 0.5
    width, buckets = rng.randint(10, 60) * 256, [rng.randint(100, 900) * 256 for _ in range(2)]
    row = ((f"{TORCH}/distributed/_functional_collectives.py", 176, "all_reduce"),
           (f"{TORCH}/distributed/tensor/_redistribute.py", 243, "redistribute_local_tensor"))  # fmt: skip
    w.collective("start", "broadcast", w.default, 16, dtype="Long", function="build")
    for w.iteration in range(rounds):
        w.host(0.04)
        for at in range(layers):
            w.compute(0.04)
            w.collective(f"row{at}", "all_reduce", tensor, width, dtype="BFloat16", library=row)
            if balanced:
                w.collective(f"balance{at}", "all_reduce", w.default, 4, function="balance")
        for at in reversed(range(layers)):
            w.compute(0.05)
            w.collective(f"column{at}", "all_reduce", tensor, width, dtype="BFloat16", autograd=True, bare=True)
        _backward(w, data, buckets)
        if w.iteration % 2:
            w.collective("grad_norm", "all_reduce", w.default, 1, function="grad_norm")
            w.synchronize()
    w.collective("end", "barrier", w.default, 1, function="main_end")
    w.synchronize()
    return w.job


def _exchange(w: Writer, rank: int, site: str, group: Group, messages: list[tuple[str, int, int]]) -> None:
    """``batch_isend_irecv``: (send or recv, peer, size)."""
    frames = w.frames(site, "batch_isend_irecv", "exchange")
    parts = tuple(
        Call(op, group, ((numel,),), ((numel,),), "BFloat16", frames, peer=peer) for op, peer, numel in messages
    )
    if parts:
        w.add(rank, Call("coalesced", group, frames=frames, parts=parts, site=site, iteration=w.iteration))


def _message(w: Writer, rank: int, site: str, group: Group, op: str, peer: int, numel: int) -> None:
    frames = w.frames(site, op, "pass_on")
    call = Call(op, group, ((numel,),), ((numel,),), "BFloat16", frames, peer=peer)
    w.add(rank, _with(call, site=site, iteration=w.iteration))


def pipeline(rng: random.Random, *, batched: bool = False) -> Job:
    """Stages that pass activations on and gradients back."""
    w = Writer(rng, "pipeline_batched" if batched else "pipeline", rng.choice((2, 3, 4, 4, 6)))
    numel, micro, rounds = rng.randint(4, 60) * 1024, rng.randint(2, 4), rng.randint(4, 8)
    last = w.job.world - 1
    w.collective("start", "barrier", w.default, 1, function="build")
    group = w.default
    for w.iteration in range(rounds):
        w.host(0.03)
        for _ in range(micro):
            for rank in w.ranks:
                if rank > 0:
                    (_exchange(w, rank, "take", group, [("recv", rank - 1, numel)]) if batched
                     else _message(w, rank, "take", group, "recv", rank - 1, numel))  # fmt: skip
                w.add(rank, Compute(0.03))
                if rank < last:
                    (_exchange(w, rank, "give", group, [("send", rank + 1, numel)]) if batched
                     else _message(w, rank, "give", group, "send", rank + 1, numel))  # fmt: skip
        for _ in range(micro):
            for rank in reversed(w.ranks):
                if rank < last:
                    (_exchange(w, rank, "take_back", group, [("recv", rank + 1, numel)]) if batched
                     else _message(w, rank, "take_back", group, "recv", rank + 1, numel))  # fmt: skip
                w.add(rank, Compute(0.05))
                if rank > 0:
                    (_exchange(w, rank, "give_back", group, [("send", rank - 1, numel)]) if batched
                     else _message(w, rank, "give_back", group, "send", rank - 1, numel))  # fmt: skip
        w.collective("norm", "all_reduce", w.default, 1, function="grad_norm")
        if w.iteration % 2:
            w.synchronize()
    w.collective("end", "barrier", w.default, 1, function="main_end")
    w.synchronize()
    return w.job


def pipeline_batched(rng: random.Random) -> Job:
    """With ``batch_isend_irecv``."""
    return pipeline(rng, batched=True)


def replicas(rng: random.Random) -> Job:
    """Several pipelines of one shape, sharded over the replicas: each micro-batch ends with a reduction across them."""
    stages, count = rng.choice(((2, 2), (2, 3), (2, 4), (3, 2), (3, 3), (4, 2)))
    w = Writer(rng, "replicas", stages * count)
    in_rows = rng.random() < 0.5
    pipes = [tuple((at * stages + p) if in_rows else (p * count + at) for p in range(stages)) for at in range(count)]
    own = rng.random() < 0.7
    made = w.mesh("mesh_pp", pipes)
    groups = made if own else dict.fromkeys(w.ranks, w.default)
    data = w.mesh("mesh_dp", [tuple(pipe[stage] for pipe in pipes) for stage in range(stages)])
    numel, layer, batched = rng.randint(4, 60) * 1024, rng.randint(50, 400) * 128, rng.random() < 0.5
    micro, rounds = rng.randint(2, 4), rng.randint(4, 7)
    w.collective("start", "barrier", w.default, 1, function="build")

    def step(rank: int, site: str, op: str, peer: int) -> None:
        if batched:
            _exchange(w, rank, site, groups[rank], [(op, peer, numel)])
        else:
            _message(w, rank, site, groups[rank], op, peer, numel)

    for w.iteration in range(rounds):
        w.host(0.03)
        for _ in range(micro):
            for pipe in pipes:
                for before, rank, after in zip((-1, *pipe), pipe, (*pipe[1:], -1), strict=False):
                    if before >= 0:
                        step(rank, "take", "recv", before)
                    w.add(rank, Compute(0.03))
                    if after >= 0:
                        step(rank, "give", "send", after)
                        step(rank, "take_back", "recv", after)
                    w.add(rank, Compute(0.05))
                    if before >= 0:
                        step(rank, "give_back", "send", before)
            w.collective("scatter", "reduce_scatter_tensor", data, layer, dtype="BFloat16", function="backward_step")
        w.collective("norm", "all_reduce", w.default, 1, function="grad_norm")
        if w.iteration % 2:
            w.synchronize()
    w.collective("end", "barrier", w.default, 1, function="main_end")
    w.synchronize()
    return w.job


def ring(rng: random.Random) -> Job:
    """Halos around a ring: even ranks send first, odd ranks receive first."""
    w = Writer(rng, "ring", rng.choice((2, 4, 4, 6, 8)))
    numel, rounds, size = rng.randint(2, 60) * 512, rng.randint(8, 14), w.job.world
    w.collective("start", "barrier", w.default, 1, function="build")
    for w.iteration in range(rounds):
        w.host(0.03)
        w.compute(0.05)
        for rank in w.ranks:
            order = ("send", "recv") if rank % 2 == 0 else ("recv", "send")
            for op in order:
                _message(w, rank, f"halo_{op}", w.default, op, (rank + (1 if op == "send" else -1)) % size, numel)
        w.collective("residual", "all_reduce", w.default, 1, function="residual")
        w.synchronize()
    w.collective("end", "barrier", w.default, 1, function="main_end")
    w.synchronize()
    return w.job


def mesh3d(
    rng: random.Random, shapes: tuple[tuple[int, int, int], ...] = ((2, 2, 2), (2, 2, 3), (2, 2, 4), (4, 2, 2))
) -> Job:
    """Pipeline × data × tensor parallel. ``shapes``: those to draw from, in this order."""
    pp, dp, tp = rng.choice(shapes)
    world = pp * dp * tp
    w = Writer(rng, "mesh3d", world)

    def at(p: int, d: int, t: int) -> int:
        return (p * dp + d) * tp + t

    pipes = w.mesh("mesh_pp", [tuple(at(p, d, t) for p in range(pp)) for d in range(dp) for t in range(tp)])
    data = w.mesh("mesh_dp", [tuple(at(p, d, t) for d in range(dp)) for p in range(pp) for t in range(tp)])
    tensor = w.mesh("mesh_tp", [tuple(at(p, d, t) for t in range(tp)) for p in range(pp) for d in range(dp)])
    width, bucket, rounds = rng.randint(5, 40) * 512, rng.randint(100, 400) * 512, rng.randint(4, 6)
    w.collective("start", "barrier", w.default, 1, function="build")
    w.collective("warm_up", "all_reduce", pipes, 1, function="build")
    for w.iteration in range(rounds):
        w.host(0.04)
        for _ in range(2):
            for rank in w.ranks:
                group = pipes[rank]
                stage = group.members.index(rank)
                if stage:
                    _exchange(w, rank, "take", group, [("recv", group.members[stage - 1], width)])
                w.add(rank, Compute(0.03))
                tp_call = collective("all_reduce", tensor[rank], width, rank, dtype="BFloat16",
                                     frames=w.frames("row", "all_reduce", "forward"))  # fmt: skip
                w.add(rank, _with(tp_call, site="row", iteration=w.iteration))
                if stage < pp - 1:
                    _exchange(w, rank, "give", group, [("send", group.members[stage + 1], width)])
        w.compute(0.1)
        w.collective("column", "all_reduce", tensor, width, dtype="BFloat16", autograd=True, bare=True)
        _backward(w, data, [bucket])
        w.collective("norm", "all_reduce", w.default, 1, function="grad_norm")
        w.synchronize()
    w.collective("end", "barrier", w.default, 1, function="main_end")
    w.synchronize()
    return w.job


def moe(rng: random.Random) -> Job:
    """Experts on different ranks: all_to_all with sizes that the router decides."""
    ep, dp = rng.choice(((4, 1), (4, 2), (3, 2), (8, 1), (2, 2)))
    w = Writer(rng, "moe", ep * dp)
    experts = w.mesh("expert_parallel", [tuple(range(at * ep, at * ep + ep)) for at in range(dp)])
    rounds, hidden = rng.randint(6, 12), rng.choice((256, 512))
    bucket = rng.randint(100, 900) * 256
    w.collective("start", "broadcast", w.default, 16, dtype="Long", function="build")
    for w.iteration in range(rounds):
        w.host(0.04)
        w.compute(0.05)
        w.collective("counts", "all_gather", experts, ep, dtype="Long", function="route")
        w.synchronize()
        for site in ("dispatch", "combine"):
            for rank in w.ranks:
                sent, got = rng.randint(20, 200), rng.randint(20, 200)
                frames = w.frames(site, "all_to_all_single", "exchange_tokens")
                call = Call("all_to_all", experts[rank], ((sent, hidden),), ((got, hidden),), "BFloat16", frames,
                            uneven=True, site=site, iteration=w.iteration)  # fmt: skip
                w.add(rank, call, Compute(0.05))
        w.collective("balance", "all_reduce", w.default, 2, function="balance")
        _backward(w, w.default, [bucket])
    w.collective("end", "barrier", w.default, 1, function="main_end")
    w.synchronize()
    return w.job


def loop(rng: random.Random) -> Job:
    """A plain loop with reductions and barriers."""
    w = Writer(rng, "loop", rng.choice((2, 3, 4, 5, 8, 16)))
    rounds, numel = rng.randint(15, 30), rng.randint(1, 300) * 16
    w.collective("start", "barrier", w.default, 1, function="main")
    for w.iteration in range(rounds):
        w.host(0.05)
        w.compute(0.05)
        w.collective("sum", "all_reduce", w.default, numel)
        w.compute(0.02)
        w.collective("share", "broadcast", w.default, numel * 2)
        if w.iteration % 4 == 3:
            w.collective("meet", "barrier", w.default, 1)
            w.synchronize()
    w.collective("end", "barrier", w.default, 1, function="main_end")
    w.synchronize()
    return w.job


def checkpoint(rng: random.Random) -> Job:
    """Gradients, and a checkpoint now and then: metadata gathered, a decision sent out, uneven shards collected."""
    w = Writer(rng, "checkpoint", rng.choice((2, 4, 4, 6, 8)))
    rounds, numel = rng.randint(10, 16), rng.randint(100, 999) * 64
    saving = w.group("checkpoint", w.default.members)
    sizes = [rng.randint(10, 90) for _ in w.ranks]
    w.collective("start", "broadcast", w.default, 32, dtype="Long", function="main")
    gather = (*LIBRARY["gather"], (C10D, 3145, "gather_object"))
    tell = (*LIBRARY["broadcast"], (C10D, 3571, "broadcast_object_list"))
    for w.iteration in range(rounds):
        w.host(0.05)
        w.compute(0.1)
        _backward(w, w.default, [numel, numel * 2])
        if w.iteration % 3 == 2:
            w.collective("sizes", "all_gather", saving, 1, dtype="Long", function="save", library=gather)
            w.synchronize()
            w.collective("plans", "gather", saving, 640, dtype="Byte", function="save", library=gather)
            w.collective("decide", "broadcast", saving, 1, dtype="Long", function="save", library=tell)
            w.collective("decision", "broadcast", saving, 96, dtype="Byte", function="save", library=tell)
            w.synchronize()
            for rank in w.ranks:
                frames = w.frames("shards", "all_gather", "save")
                parts = tuple(Call("_broadcast_oop", saving, ((size,),), ((size,),), "Float", frames) for size in sizes)
                w.add(rank, Call("ALLGATHER_coalesced", saving, frames=frames, parts=parts, site="shards",
                                 iteration=w.iteration))  # fmt: skip
            w.host(0.2)
            w.collective("saved", "barrier", w.default, 1, function="save")
            w.synchronize()
    w.collective("end", "barrier", w.default, 1, function="main_end")
    w.synchronize()
    return w.job


def script(rng: random.Random) -> Job:
    """Somebody's own script: functions, operations and sizes at random, in one group or two."""
    w = Writer(rng, "script", rng.choice((2, 3, 4, 6, 7, 8)))
    side = w.group(rng.choice(("undefined", "metrics", "ema")), w.default.members)
    names = rng.sample(("sync_stats", "merge", "vote", "exchange", "reduce_all", "share", "collect", "agree"), 5)
    apis = ("all_reduce", "broadcast", "all_gather", "reduce", "all_gather_into_tensor", "barrier", "gather",
            "reduce_scatter_tensor")  # fmt: skip
    plan = [
        (f"{name}{at}", rng.choice(apis), rng.choice((w.default, w.default, side)), rng.randint(1, 400) * 8, name)
        for at, name in enumerate(names)
    ]
    rounds = rng.randint(10, 20)
    w.collective("start", "broadcast", w.default, 8, function="main")
    for w.iteration in range(rounds):
        w.host(0.05)
        for site, api, group, numel, name in plan:
            w.compute(0.03)
            w.collective(site, api, group, numel, function=name, dtype=("Float", "BFloat16")[len(site) % 2])
        if w.iteration % 3 == 2:
            w.synchronize()
    w.collective("end", "barrier", w.default, 1, function="main_end")
    w.synchronize()
    return w.job


_ALL = (ddp, ddp_eval, fsdp, tp_dp, mesh3d, pipeline, pipeline_batched, ring, moe, loop, checkpoint, script, replicas)
FAMILIES: dict[str, Callable[[random.Random], Job]] = {make.__name__: make for make in _ALL}


def tp_dp_large(rng: random.Random) -> Job:
    """A two-dimensional mesh of 16 to 64 ranks."""
    return tp_dp(rng, ((4, 4), (4, 8), (8, 4), (2, 16), (8, 8)))


def mesh3d_large(rng: random.Random) -> Job:
    """A three-dimensional mesh of 16 to 64 ranks."""
    return mesh3d(rng, ((2, 4, 2), (4, 4, 2), (2, 4, 4), (4, 4, 4)))


LARGE: dict[str, Callable[[random.Random], Job]] = {make.__name__: make for make in (tp_dp_large, mesh3d_large)}
"""Drawn only when they are asked for."""
