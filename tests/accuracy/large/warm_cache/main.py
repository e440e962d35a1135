"""A cache that is warm already is not announced.

Four ranks learn to sort tickets. Rank 0 turns each split of the text into a table of features in a cache, and announces
the table in the job's store, where the others wait for it. The test split has the recipe of the validation split: its
cache is warm, rank 0 takes it and announces nothing. It goes on to a broadcast; ranks 1 to 3 wait for the key.
"""

# /// hangdoc
# launch = "torchrun --standalone --nproc-per-node 4"
# outcome = "hang"
# cause = "HD305"
# culprits = [0]
# lines = [49]
# file = "tables.py"
# code = ["dist.broadcast(header, src=0)"]
# branch = ["is_warm(folder, print_of)"]
# source = "constructed"
# ///

import logging

import torch

from comm import setup
from config import options
from corpus import tables
from evaluate import final
from learner import loop
from output import keep, lines


def run(place, opts, store):
    log = logging.getLogger("tickets")
    desk = tables.open_desk(opts, place, store)
    train = tables.load(desk, "train")
    valid = tables.load(desk, "valid")
    log.info("%d rows to learn from, %d to check with", train.rows, valid.rows)
    result = loop.learn(train, valid, opts, place)
    if place.rank == 0 and opts["output"]["keep"]:
        keep.write(result, opts)
    test = tables.load(desk, "test")
    scores = final.score(result.weights, test, opts, place)
    if place.rank == 0:
        for line in lines.report(result, scores, opts):
            print(line, flush=True)
    tables.close_desk(desk)


def main():
    opts = options.read()
    torch.set_num_threads(opts["run"]["threads"])
    place = setup.join(opts)
    lines.start_logging(place, opts["run"]["verbose"])
    try:
        run(place, opts, setup.store_of(place))
    finally:
        setup.leave(place)


if __name__ == "__main__":
    main()
