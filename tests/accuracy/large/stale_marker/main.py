"""A rank polls for a lock file that a killed attempt left, for on shared storage it may not take a lock over.

Forecasts for weather stations, trained in two stages with longer windows in the second. The windows are cached on
disk, and a lock file guards each cache while it is built. The attempt before this one was killed while it built the
caches of the second stage. A rank with local storage sees from the process number in the lock that the owner is gone.
The stations of rank 1 are too many for the local disk; on shared storage the number would mean nothing, so that rank
waits until somebody removes the lock, and the others wait for it in an all_gather.
"""

# /// hangdoc
# launch = "torchrun --standalone --nproc-per-node 4"
# watch = "--give-up-after 8"
# outcome = "hang"
# cause = "HD504"
# culprits = [1]
# file = "locks.py"
# lines = [42]
# code = ["time.sleep(self.pause)"]
# branch = ["self.takes_over and self._owner_is_gone()"]
# source = "constructed"
# ///

from __future__ import annotations

import logging
import sys

import torch

from callbacks.base import Hooks
from callbacks.checkpoints import KeepBest
from callbacks.console import Console
from callbacks.drift import DriftWatch
from callbacks.rates import RateControl
from cluster.world import World, joined
from feed.stations import StationFile
from learning.fit import Fitter
from learning.forecaster import Forecaster
from learning.stages import Stage, stages_of
from settings.ini import Configuration, read_configuration
from storage.caches import WindowCache
from storage.earlier import leave_traces
from storage.places import Place, choose_place
from storage.workspace import Workspace

LOG = logging.getLogger("forecast")


def set_up_logging(configuration: Configuration, world: World) -> None:
    chosen = configuration.text("run", "log_level").upper()
    level = getattr(logging, chosen, logging.INFO)
    everybody = configuration.flag("run", "all_ranks_log")
    if not everybody and level < logging.WARNING and not world.leads:
        level = logging.WARNING
    logging.basicConfig(stream=sys.stderr, level=level, format=f"{world.rank} %(name)s %(levelname)s %(message)s")


def hooks_for(configuration: Configuration, world: World, workspace: Workspace) -> Hooks:
    hooks = Hooks([Console(configuration.integer("run", "log_every")), RateControl(configuration)])
    if configuration.flag("callbacks", "drift"):
        hooks.append(DriftWatch(configuration.number("callbacks", "drift_limit")))
    kept = configuration.integer("callbacks", "keep")
    if kept > 0 and world.leads:
        hooks.append(KeepBest(workspace.folder("checkpoints"), kept))
    return hooks


def prepare_stage(stage: Stage, stations: StationFile, place: Place, configuration: Configuration) -> WindowCache:
    """The windows of the stage, from the cache where it is complete, else built anew."""
    cache = WindowCache(place, stage, configuration)
    if cache.complete(stations):
        LOG.info("stage %s: the cache is complete", stage.name)
        cache.load()
    else:
        cache.build(stations)
    return cache


def run(configuration: Configuration, world: World) -> int:
    set_up_logging(configuration, world)
    torch.manual_seed(configuration.integer("run", "seed"))
    workspace = Workspace.shared(configuration, world)
    stations = StationFile.draw(configuration, world)
    place = choose_place(stations, workspace, configuration, world)
    stages = stages_of(configuration)
    leave_traces(place, stages, stations, configuration)
    world.meet()
    model = Forecaster(configuration, horizon=max(stage.horizon for stage in stages))
    hooks = hooks_for(configuration, world, workspace)
    fitter = Fitter(model, hooks, configuration, world)
    for stage in stages:
        cache = prepare_stage(stage, stations, place, configuration)
        sizes = world.gather([len(cache), cache.seconds])
        if world.leads:
            LOG.info("stage %s: %s windows", stage.name, " + ".join(f"{size:.0f}" for size, _ in sizes))
        smallest = int(min(size for size, _ in sizes))
        if smallest == 0:
            LOG.error("stage %s: a rank has no windows", stage.name)
            return 1
        fitter.run(stage, cache, smallest)
        if fitter.given_up:
            break
    if world.leads:
        LOG.info("best: %s", f"{fitter.best:.4f}" if fitter.best is not None else "none")
    world.meet()
    workspace.remove()
    return 0


def main(arguments: list[str]) -> int:
    configuration = read_configuration(arguments)
    with joined(configuration) as world:
        return run(configuration, world)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
