"""A registry of hooks reorders two averages on one rank.

Eight ranks train a small mixture of experts: expert gradients are averaged over groups of four ranks, dense gradients
over all. The registry of hooks lets those with a small payload wait until the end, and measures the payload on each
rank for itself. A batch of one repeated token makes the experts' payload small on rank 5, which then begins with the
dense gradients: it waits for all, and three ranks of its expert group wait for it.
"""

# /// hangdoc
# launch = "torchrun --standalone --nproc-per-node 8"
# outcome = "hang"
# cause = "HD107"
# culprits = [5]
# lines = [15]
# file = "sync.py"
# code = ["dist.all_reduce(flat, group=group)"]
# branch = ["hook.payload is not None and hook.payload(state) < state.small_below"]
# source = "constructed"
# ///

import sys

import torch

from conf import build_config
from corpus import build_stream
from groups import close_groups, open_groups
from hooks import HOOKS, import_hooks
from nets import build_net
from probing import probe
from reporting import Ledger, say
from training import train


def main(argv):
    torch.set_num_threads(1)
    config = build_config(argv)
    groups = open_groups(config["groups"])
    try:
        import_hooks(config["hooks"])
        ledger = Ledger(config["report"], groups)
        torch.manual_seed(config["seed"])
        net = build_net(config["net"])
        stream = build_stream(config["corpus"], groups.rank, groups.size)
        say(groups, f"{sum(p.numel() for p in net.parameters())} weights, hooks: {', '.join(HOOKS.names())}")
        train(net, stream, groups, config, ledger)
        score = probe(net, config, groups)
        if groups.rank == 0:
            for line in ledger.summary(score):
                print(line, flush=True)
    finally:
        close_groups(groups)


if __name__ == "__main__":
    main(sys.argv[1:])
