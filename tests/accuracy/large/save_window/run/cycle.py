"""The steps of a stage."""

from collections.abc import Iterator
from pathlib import Path

from notes.journal import Journal
from notes.pace import paces
from physics.regimes import endless
from run.state import State
from run.update import update
from score.forecast import score
from score.summary import lines, table
from setup.options import Options, Stage
from storage.policy import fill, wants_save
from storage.snapshots import write_snapshot
from storage.traces import Traces
from talk.ranks import Here, largest
from windows.batches import Batch, batches


def stage_batches(options: Options, stage: Stage, number: int, here: Here) -> Iterator[Batch]:
    steepness = stage.steepness[here.rank % len(stage.steepness)]
    seed = options.seed + 100 * number + here.rank
    source = endless(options.grid, steepness, 8, options.viscosity, options.substeps, seed)
    return batches(options, source, seed)


def run_stage(
    state: State, number: int, first: int, options: Options, traces: Traces, journal: Journal, here: Here
) -> int:
    """Returns the number of the step after the last one."""
    stage = options.stages[number]
    stream, pace = stage_batches(options, stage, number, here), paces()
    last_fill = "low"
    for step in range(first, first + stage.steps):
        batch = next(stream)
        note, forecast = update(state, batch, step, options, here)
        state.notes.append(note)
        kept = traces.keep_bad(step, batch.start, forecast, batch.following)
        if kept and note.shocks:
            journal.note(f"step {step}: {kept} traces, {note.shocks} shocks")
        used = largest(traces.used()) if options.share_usage else traces.used()
        window = state.window
        now = fill(used, window)
        if now != last_fill:
            journal.note(f"scratch is {now}: {used:.0f} bytes")
            last_fill = now
        if wants_save(step, used, window):
            count = write_snapshot(Path(options.out), step, state.parameters, state.moments, traces, here)
            state.window = window.saved(step)
            state.snapshots += 1
            journal.tell(f"step {step}: snapshot with {count} traces")
        _, slow = next(pace)
        if slow:
            state.slow += 1
        if journal.is_turn(step):
            journal.tell(f"step {step}: loss {state.recent_loss():.5f}, |g| {note.norm:.3f}")
            if state.is_worse():
                journal.note("the loss is rising here")
        if options.score_every and step and step % options.score_every == 0:
            steepness = stage.steepness[here.rank % len(stage.steepness)]
            for line in lines(table(score(state.parameters, options, steepness, 900 + step), here)):
                journal.tell(line)
    return first + stage.steps
