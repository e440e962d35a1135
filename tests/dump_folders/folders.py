"""The default set of folders: every fault and every healthy kind, in every family and dialect, by seed."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from dump_folders.faults import FAULTS, Damage, NoPlace, families_for, nothing
from dump_folders.oracle import Truth, truth
from dump_folders.programs import FAMILIES, LARGE
from dump_folders.simulator import Machine
from dump_folders.write import NAMES, SCHEMAS, Dumping, visible, write

DEFAULT = 200
SEED = 13
_TRIES = 200
_LARGE_TRIES = 20
_CLOCKS = 7
"""The hosts' clocks are minutes apart in one folder of so many."""
_SLOW_PATH = frozenset({"2.7", "2.9", "2.10"})
"""Schemas that show the parts of an uneven all_gather."""
HEALTHY = ("complete", "running", "running_long_skew", "complete_unseen")


@dataclass
class Case:
    """One folder, before it is written."""

    name: str
    family: str
    fault: str
    machine: Machine
    dumping: Dumping
    truth: Truth
    seed: str

    def write(self, folder: Path) -> Path:
        """Write it below ``folder``; returns the folder to hand over."""
        target = folder / self.name
        target.mkdir(parents=True)
        write(target, self.machine, self.dumping, random.Random(self.seed))
        return target


def cases(count: int = DEFAULT, seed: int = SEED, *, plain: bool = False, large: bool = False) -> Iterator[Case]:
    """``count`` folders: the faults in turn, every fifth one healthy; half of all without a recorded start. ``plain``:
    the newest schema, pickled, under torch's own names, and no other file: only what the dumps say is hard.
    ``large``: 16 to 64 ranks on meshes; fewer folders than asked for, as not every fault has a place there."""
    faults, healthy = [fault for fault in FAULTS if families(fault, large=large)], list(HEALTHY)
    met: Counter[str] = Counter()
    for number in range(count):
        turn, rest = divmod(number, 5)
        fault = healthy[turn % len(healthy)] if rest == 4 else faults[(turn * 4 + rest) % len(faults)]
        met[fault] += 1
        timing = (met[fault] + (faults + healthy).index(fault)) % 2 == 0
        try:
            yield make(fault, f"{seed}-{number}", number, timing=timing, plain=plain, large=large)
        except NoPlace:
            if not large:
                raise


def families(fault: str, *, large: bool) -> list[str]:
    """The families of jobs that have a place for the fault."""
    there = list(FAMILIES) if fault in HEALTHY else families_for(fault)
    return [name for name in LARGE if name.removesuffix("_large") in there] if large else there


def make(
    fault: str, seed: str, number: int = 0, *, timing: bool = False, plain: bool = False, large: bool = False
) -> Case:
    """The folder of one fault; other seeds, other families, ranks, lines and dialects. ``timing``: with starts. Raises
    ``NoPlace``."""
    for attempt in range(_LARGE_TRIES if large else _TRIES):
        rng = random.Random(f"{seed}-{fault}-{attempt}")
        try:
            return _make(rng, fault, f"{seed}-{fault}-{attempt}", number, timing=timing, plain=plain, large=large)
        except NoPlace:
            continue
    raise NoPlace(f"no job has a place for {fault}")


def _make(rng: random.Random, fault: str, seed: str, number: int, *, timing: bool, plain: bool, large: bool) -> Case:
    family = rng.choice(families(fault, large=large))
    job = (FAMILIES | LARGE)[family](rng)
    before = {rank: list(steps) for rank, steps in job.programs.items()}
    damage = nothing(job, rng) if fault in HEALTHY else FAULTS[fault](job, rng)
    schema = "2.10" if plain else rng.choice(SCHEMAS)
    machine = Machine(
        job.groups,
        job.programs,
        eager=rng.random() < 0.4,
        depth=rng.choice((3, 6, 12, 30, 100)),
        pace=rng.uniform(2, 10),
        batch_bumps_collective=schema in {"2.0", "2.1", "2.2", "2.3"},
        slow_path=schema in _SLOW_PATH,
        short_ends=rng.random() < 0.3,
    ).run()
    if machine.hung == (fault in HEALTHY):
        raise NoPlace  # it does not hang: the calls happen to match
    dumping = _dumping(rng, fault, machine, damage, schema, number, timing=timing)
    if plain:
        dumping = _plain(dumping)
    if fault not in HEALTHY and not _shows(machine, dumping):
        raise NoPlace  # the ranks wait for a communicator to be made: no recorder hears of that
    if rng.random() < 0.04 and not plain:
        dumping.older_run = Machine(job.groups, before, slow_path=schema in _SLOW_PATH).run()
    found = truth(damage, machine, dumping, running=fault.startswith("running"))
    return Case(f"{number:03d}-{fault}-{family}", family, fault, machine, dumping, replace(found, fault=fault), seed)


def _dumping(
    rng: random.Random, fault: str, machine: Machine, damage: Damage, schema: str, number: int, *, timing: bool
) -> Dumping:
    ranks = sorted(machine.cpus)
    timeout = rng.choice((120.0, 600.0, 600.0, 1800.0))
    watchdog = fault not in HEALTHY and rng.random() < 0.6
    moments = _moments(rng, fault, machine, timeout, watchdog=watchdog)
    gone = set(damage.gone)
    if fault == "complete_unseen" and len(ranks) > 2:
        gone.add(rng.choice(ranks))
    spoiled = {}
    for rank in gone:
        how = rng.choice(("absent", "truncated", "empty")) if rank not in _dead(machine) else "absent"
        if how == "absent":
            del moments[rank]
        else:
            spoiled[rank] = how
    as_json = schema not in {"2.0", "2.1", "2.2", "2.3"} and rng.random() < 0.2
    per_host = rng.choice((1, 2, 4, 8))
    offsets = [rng.choice((0.0, 0.002, -0.004, 0.02)) for _ in range(16)]
    if number % _CLOCKS == 0:  # drawn by itself: the other folders stay the same
        off = random.Random(number)
        offsets = [off.uniform(-240, 240) for _ in offsets]
    dumping = Dumping(
        moments,
        watchdog=watchdog,
        timing=timing,
        timeout=timeout,
        retired_at_timeout=watchdog and rng.random() < 0.25,
        schema=schema,
        ring=rng.choice((20, 40, 2000, 2000, 2000)),
        only_active=rng.random() < 0.08,
        frames=rng.random() < 0.75,
        as_json=as_json,
        zipped=rng.random() < 0.1,
        names=rng.choice(("plain", "plain", *NAMES)),
        per_host=per_host,
        clock={rank: offsets[rank // per_host % len(offsets)] for rank in ranks},
        copied=rng.random() < 0.2,
        spoiled=spoiled,
        foreign=rng.random() < 0.25,
    )
    if rng.random() < 0.04 and schema == "2.10" and len(ranks) > 2:
        dumping.odd_schema = (rng.choice(ranks), "2.9")
    return dumping


def _plain(dumping: Dumping) -> Dumping:
    kept = {rank: moment for rank, moment in dumping.moments.items() if rank not in dumping.spoiled}
    frames = dumping.frames and not dumping.as_json
    return replace(dumping, moments=kept, spoiled={}, names="plain", as_json=False, frames=frames, zipped=False,
                   foreign=False, odd_schema=None)  # fmt: skip


def _shows(machine: Machine, dumping: Dumping) -> bool:
    """Is a call pending in the dumps that can be read?"""
    readable = set(dumping.moments) - set(dumping.spoiled)
    return any(e.completed is None and e.entry.kernel for r in readable for e in visible(machine, dumping, r))


def _dead(machine: Machine) -> set[int]:
    return {rank for rank, cpu in machine.cpus.items() if cpu.gone is not None}


def _moments(rng: random.Random, fault: str, machine: Machine, timeout: float, *, watchdog: bool) -> dict[int, float]:
    """When each rank dumps."""
    ranks = sorted(machine.cpus)
    if fault.startswith("running"):
        skew = rng.uniform(15, 60) if "long" in fault else rng.choice((0.0, 0.3, 2.0, 6.0))
        base = machine.last_move * rng.uniform(0.3, 0.7)
        return {rank: base + rng.uniform(0, skew) for rank in ranks}
    if fault in HEALTHY:
        return {rank: machine.last_move + 1 + rng.uniform(0, 5) for rank in ranks}
    if watchdog:
        # The first to time out tells the others through the store; each dumps when it hears of it.
        created = [entry.created for entry in machine.pending()]
        if not created:
            raise NoPlace  # nothing that a watchdog watches
        first = min(created) + timeout
        return {rank: first + rng.uniform(0.1, 4) for rank in ranks}
    base, skew = machine.last_move + rng.uniform(25, 400), rng.choice((0.01, 1.0, 5.0))
    return {rank: base + rng.uniform(0, skew) for rank in ranks}
