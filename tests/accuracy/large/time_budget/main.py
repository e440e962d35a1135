"""Two ranks have used up their own time for data, and leave out an evaluation that the others begin with a barrier.

Eight ranks learn to tell and to clean small glyphs. The glyphs come in shards; a shard may be at hand, near, or in cold
storage, from where it takes a while. An intermediate evaluation is a luxury: a rank whose data loading has taken longer
than its allowance leaves it out to catch up. Before the second one ranks 2 and 5 have waited for cold shards. They go
on to the gradients of the next step, and the other six wait for them in the barrier of the evaluation.
"""

# /// hangdoc
# launch = "torchrun --standalone --nproc-per-node 8"
# outcome = "hang"
# cause = "HD101"
# culprits = [2, 5]
# file = "reduce.py"
# lines = [36]
# code = ["dist.all_reduce(flat)"]
# branch = ["clock.spent('data') > allowance"]
# source = "constructed"
# ///

import sys

import torch

from core.clock import Clock
from core.options import load
from core.ranks import close, here, open_job
from feeds.loader import Loader
from feeds.manifest import assign, manifest
from loops.evaluate import final_evaluation
from loops.fit import fit
from loops.reduce import broadcast_start
from nets.average import Average
from nets.glyphnet import glyphnet
from tracking.keeper import Keeper
from tracking.log import Log


def start(cfg, log):
    me = here()
    torch.manual_seed(cfg["seed"])
    net = glyphnet(cfg["net"])
    broadcast_start(net)
    torch.manual_seed(cfg["seed"] * 1000 + me.rank)
    shards = assign(manifest(cfg["data"], me.world), me)
    cold = [shard for shard in shards if shard["tier"] == "cold"]
    if cold:
        log.debug(f"{len(cold)} of {len(shards)} shards are in cold storage")
    clock = Clock()
    loader = Loader(shards, cfg["data"], clock, me)
    return net, loader, clock


def main(argv):
    cfg = load(argv)
    me = open_job(cfg["timeout_minutes"])
    log = Log(cfg["log"], me)
    net, loader, clock = start(cfg, log)
    average = Average(net, cfg["average"]["decay"]) if cfg["average"]["on"] else None
    keeper = Keeper(cfg["keep"], me)
    if me.first:
        size = sum(p.numel() for p in net.parameters())
        log(f"{me.world} ranks, {size} parameters, {cfg['steps']} steps")
    reached = fit(net, loader, average, keeper, clock, cfg, log)
    result = final_evaluation(net, average, cfg, log)
    if me.first:
        log(f"after {reached} steps: {result['right']:.1%} right, noise left {result['noise']:.4f}")
        for name, seconds in clock.shares():
            log.debug(f"{name}: {seconds:.2f} s")
    keeper.close()
    close()
    return 0 if result["right"] >= cfg["expect"] else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
