from typing import Any, NamedTuple


class Stage(NamedTuple):
    steps: int
    steepness: tuple[float, ...]
    noise: float


class SaveOptions(NamedTuple):
    first: int
    every: int
    apart: int
    quota_kb: float
    high_water: float


class TraceOptions(NamedTuple):
    threshold: float
    most_per_step: int


class Options(NamedTuple):
    seed: int
    backend: str
    scratch: str
    out: str
    grid: int
    viscosity: float
    substeps: int
    stages: tuple[Stage, ...]
    batch: int
    horizon: int
    hidden: int
    depth: int
    rate: float
    warmup: int
    clip: float
    save: SaveOptions
    trace: TraceOptions
    score_every: int
    talk_every: int
    share_usage: bool = False

    @property
    def steps(self) -> int:
        return sum(stage.steps for stage in self.stages)


def from_table(table: dict[str, Any]) -> Options:
    stages = tuple(Stage(s["steps"], tuple(s["steepness"]), s["noise"]) for s in table["stages"])
    known = {name: value for name, value in table.items() if name in Options._fields}
    strange = sorted(name for name in table if name not in Options._fields)
    if strange:
        raise ValueError(f"unknown options: {', '.join(strange)}")
    return Options(
        **known
        | {
            "stages": stages,
            "save": SaveOptions(**table["save"]),
            "trace": TraceOptions(**table["trace"]),
        }
    )


def problems(options: Options) -> list[str]:
    """What cannot work, in words."""
    found = []
    if options.grid < 8 or options.grid % 2:
        found.append("grid must be even and at least 8")
    if not options.stages:
        found.append("no stages")
    if options.horizon < 1:
        found.append("horizon must be positive")
    if any(stage.steps < 0 for stage in options.stages):
        found.append("a stage has negative steps")
    if not 0 < options.save.high_water <= 1:
        found.append("high_water is a share of the quota")
    return found
