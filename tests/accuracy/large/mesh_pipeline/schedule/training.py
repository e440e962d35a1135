from __future__ import annotations

import math

from feed.micro import micros_of
from feed.tokens import Tokens
from mesh.groups import Mesh
from monitor.board import Board
from monitor.clock import StepClock
from monitor.health import Health
from monitor.totals import Totals, step_totals
from plan.config import Config
from schedule.ledger import Ledger
from schedule.memory import Memory
from schedule.runner import Runner
from schedule.slots import most_in_flight, slots_of
from stages.stage import Stage
from tuning.momentum import Momentum
from tuning.rates import rate_at
from wire.channel import Channel
from wire.outbox import Outbox


class Training:
    """All steps of this rank."""

    def __init__(self, config: Config, mesh: Mesh, board: Board) -> None:
        here = mesh.here
        self.config = config
        self.mesh = mesh
        self.board = board
        self.stage = Stage(config, mesh)
        self.outbox = Outbox(most=2 * config.micro_batches)
        self.channel = Channel(here, self.outbox)
        self.tokens = Tokens(config.vocabulary, here.replica, config.seed)
        self.memory = Memory(config.budget(here.rank))
        self.runner = Runner(here, self.stage, self.channel, self.tokens, Ledger(once=config.book_once), self.memory)
        self.momentum = Momentum(self.stage.parameters, config.momentum)
        self.clock = StepClock(config.slow_factor)
        self.health = Health()
        self.history: list[Totals] = []

    @property
    def healthy(self) -> bool:
        return bool(self.history) and all(math.isfinite(each.loss) for each in self.history)

    def step(self, step: int) -> None:
        micros = micros_of(step, self.config)
        slots = list(slots_of(self.mesh.here, micros))
        self.outbox.settle()
        if step == 0 and self.mesh.speaks:
            self.board.say(f"up to {most_in_flight(slots)} micro-batches in flight")
        with self.clock:
            outcome = self.runner.run(slots, micros)
            norm = self.stage.average_gradients()
        if self.health.look(norm):
            self.momentum.move(rate_at(step, self.config.rate, self.config.steps))
        totals = step_totals(outcome, self.memory, self.mesh)
        self.history.append(totals)
        self.board.after_step(step, totals, norm, self.clock, self.memory)
