"""An expert without tokens has no gradients, and its rank leaves out the average over the expert's replicas.

Sixteen ranks make a mesh of four data replicas and four experts: ranks 1, 5, 9 and 13 hold the second expert. A
token goes to an expert by a table of hashes; a batch with next to no tokens for the rank's expert goes around it. In
one step all documents of rank 9 are tables of numbers, which belong to another expert. Its own gets no gradient, and
the helper that averages gradients returns at once when there are none. Rank 9 waits in the average of the dense
parameters with twelve others, the three other replicas of its expert wait for it in theirs.
"""

# /// hangdoc
# launch = "torchrun --standalone --nproc-per-node 16"
# outcome = "hang"
# cause = "HD101"
# culprits = [9]
# file = "gradients.py"
# lines = [20]
# code = ["dist.all_reduce(flat, group=group)"]
# branch = ["not gradients"]
# source = "constructed"
# ///

import sys
from functools import partial

import torch

from sparselab.corpus.stream import training_stream
from sparselab.network.whole import build_network, split_parameters
from sparselab.parallel.mesh import leave, make_mesh
from sparselab.reporting.console import banner, say
from sparselab.reporting.counters import Counters
from sparselab.settings.parse import read_options
from sparselab.storage.shards import ShardStore, shared_folder
from sparselab.training.hooks import balance_hook, evaluation_hook, progress_hook, save_hook
from sparselab.training.optim import make_optimizer
from sparselab.training.schedule import make_schedule
from sparselab.training.step import TrainState, run_steps


def prepare(options, mesh):
    torch.manual_seed(options["seed"])
    network = build_network(options)
    # Replicas of an expert begin alike, different experts do not.
    torch.manual_seed(options["seed"] + 1 + mesh.expert)
    for name, parameter in network.named_parameters():
        if "adapter" in name and parameter.dim() > 1:
            torch.nn.init.normal_(parameter, std=0.05)
    dense, sparse = split_parameters(network)
    return TrainState(
        network=network,
        dense=dense,
        sparse=sparse,
        optimizer=make_optimizer(dense, sparse, options),
        schedule=make_schedule(options),
        counters=Counters(window=options["window"]),
    )


def choose_hooks(options, mesh, store):
    hooks = [partial(progress_hook, every=options["log_every"])]
    if options["balance_every"]:
        hooks.append(partial(balance_hook, every=options["balance_every"]))
    if options["evaluate_every"]:
        hooks.append(partial(evaluation_hook, every=options["evaluate_every"], documents=options["held_out"]))
    if options["save_every"] and store is not None:
        hooks.append(partial(save_hook, every=options["save_every"], store=store))
    return hooks


def main(arguments):
    options = read_options(arguments)
    mesh = make_mesh(options["experts"])
    if mesh.world != options["experts"] * options["replicas"]:
        raise SystemExit(f"the mesh needs {options['experts'] * options['replicas']} ranks, there are {mesh.world}")
    folder = shared_folder(options["folder"], mesh)
    store = ShardStore(folder, mesh, keep=options["keep"]) if options["save_every"] else None
    state = prepare(options, mesh)
    banner(options, mesh, state)
    run_steps(state, training_stream(options, mesh), choose_hooks(options, mesh, store), options, mesh)
    if store is not None:
        store.close()
    say(mesh, f"done after {state.step} steps: {state.counters.summary()}")
    leave()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
