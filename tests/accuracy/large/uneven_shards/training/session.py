"""Everything put together."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from torch.nn.parallel import DistributedDataParallel

from assessment.perplexity import Assessment, assess
from assessment.samples import Sampler
from batching.plan import Planner
from batching.stream import Stream
from comm.world import World
from corpus.shards import Catalogue
from keeping.checkpoints import Keeper
from net.language_model import LanguageModel
from reporting.console import Console
from reporting.records import Records
from settings.schema import Settings
from training.epoch import EpochResult, EpochRunner
from training.optimizing import Optimizing
from training.schedules import WarmCosine


@dataclass
class Summary:
    epochs: list[EpochResult] = field(default_factory=list)
    assessments: list[Assessment] = field(default_factory=list)

    @property
    def steps(self) -> int:
        return sum(each.steps for each in self.epochs)

    @property
    def best(self) -> float:
        return min((each.perplexity for each in self.assessments), default=float("inf"))

    def describe(self) -> str:
        if not self.epochs:
            return "no epochs"
        return f"{self.steps} steps, loss {self.epochs[-1].loss:.3f}, best perplexity {self.best:.2f}"


class Session:
    def __init__(self, settings: Settings, world: World) -> None:
        self.settings = settings
        self.world = world
        root = Path(__file__).parents[1]
        catalogue = Catalogue.from_manifest(root / settings.corpus.manifest)
        self.stream = Stream(settings, catalogue, world.rank, world.size)
        self.planner = Planner(catalogue, settings.batching, world.size, agree=settings.agree_on_steps)
        plain = LanguageModel(len(self.stream.vocabulary), settings.net).to(world.device)
        self.plain = plain
        self.model = DistributedDataParallel(plain)
        self.console = Console(settings.reporting, world)
        self.records = Records(Path(settings.keeping.folder), world)
        self.keeper = Keeper(settings.keeping, world)
        self.sampler = Sampler(self.stream.vocabulary, settings.world.seed)
        steps = sum(self.planner.plan(epoch, None).steps for epoch in range(settings.training.epochs))
        optimizing = Optimizing(plain, settings.training)
        self.runner = EpochRunner(self.model, optimizing, WarmCosine(settings.training, steps), self.console)
        self.optimizing = optimizing

    def run(self) -> Summary:
        summary = Summary()
        for epoch in range(self.settings.training.epochs):
            own_steps = self.stream.count(epoch) if self.settings.agree_on_steps else None
            plan = self.planner.plan(epoch, own_steps)
            self.console.begin(plan, self.stream.shard(epoch).name)
            result = self.runner.run(self.stream, plan)
            summary.epochs.append(result)
            assessment = assess(self.plain, self.stream, epoch)
            improved = assessment.perplexity < summary.best
            summary.assessments.append(assessment)
            self.console.end(result, assessment, self.stream.screen.report())
            self.records.write(epoch, result, assessment, self.runner.speed.slow)
            if self.keeper.due(epoch) or (improved and epoch > 0):
                self.keeper.keep(epoch, self.plain, self.optimizing.optimizer, assessment.perplexity)
            if self.world.is_main and epoch % 2 == 1:
                self.console.say(self.sampler.sample(self.plain, "the "))
        self.records.close()
        return summary
