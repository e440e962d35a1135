import math
from pathlib import Path

import torch

from notes.journal import Journal
from optim.lion import new_moments
from run.cycle import run_stage
from run.state import State
from setup.options import Options
from storage.policy import new_window
from storage.snapshots import restore, write_snapshot
from storage.traces import Traces
from surrogate.network import new_parameters
from talk.ranks import joined


def program(options: Options) -> int:
    with joined(options.backend) as here, Journal(Path(options.out) / "journals", here, options.talk_every) as journal:
        torch.manual_seed(options.seed + here.rank)
        parameters = new_parameters(options.hidden, options.depth + 1, options.seed)
        state = State(parameters, new_moments(parameters), new_window(options.save))
        traces = Traces(Path(options.scratch) / f"rank-{here.rank}", options.trace)
        step = restore(Path(options.out), parameters)
        if step:
            journal.tell(f"goes on from step {step}")
        for number, stage in enumerate(options.stages):
            if not stage.steps:
                continue
            journal.tell(f"stage {number}: {stage.steps} steps")
            step = run_stage(state, number, step, options, traces, journal, here)
        write_snapshot(Path(options.out), step, state.parameters, state.moments, traces, here)
        loss = state.recent_loss()
        shocks = sum(note.shocks for note in state.notes)
        if shocks > len(state.notes):
            journal.note(f"a hard regime: {shocks} shocks")
        if state.slow > 5:
            journal.note(f"{state.slow} steps were slow")
        journal.tell(f"done: {step} steps, loss {loss:.5f}, {state.snapshots} snapshots")
        return 1 if math.isnan(loss) else 0
