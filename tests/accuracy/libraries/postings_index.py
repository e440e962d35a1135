# /// hangdoc
# launch = "torchrun --standalone --nproc-per-node 3"
# requires = []
# outcome = "hang"
# causes_any = ["HD509", "HD507"]
# culprits = [1]
# lines = [37, 59, 62]
# source = "https://github.com/pytorch/translate/pull/285"
# ///
"""Builds an inverted index of one language per rank with helper processes and gathers the vocabulary sizes."""
import argparse
import collections
import logging
import multiprocessing as mp
import queue
import random

import torch.distributed as dist

LANGUAGES = {"nl": 60, "en": 6000, "da": 45}
HELPERS = 2
log = logging.getLogger("index")


def read_language(lang, count):
    rng = random.Random(f"seed-{lang}")
    for doc in range(count):
        yield doc, [f"{lang}{int(rng.paretovariate(1.1)) % 900:03d}" for _ in range(30)]


def invert(slice_of_docs, out):
    postings = collections.defaultdict(list)
    for doc, terms in slice_of_docs:
        for term in terms:
            postings[term].append(doc)
    for term, ids in sorted(postings.items()):
        out.put((term, ids))


class IndexBuilder:
    def __init__(self, lang, helpers):
        self.lang = lang
        self.helpers = helpers
        self.ctx = mp.get_context("fork")
        self.index = collections.defaultdict(list)

    def split(self, docs):
        docs = list(docs)
        return [docs[i::self.helpers] for i in range(self.helpers)]

    def build(self, docs):
        results = self.ctx.Queue()
        workers = []
        for part in self.split(docs):
            proc = self.ctx.Process(target=invert, args=(part, results), name=f"invert-{self.lang}")
            proc.start()
            workers.append(proc)
        for proc in workers:
            proc.join()
        while True:
            try:
                term, ids = results.get_nowait() if results.empty() else results.get()
            except queue.Empty:
                break
            self.index[term].extend(ids)
        return self.index


def report(index, lang):
    longest = max(index, key=lambda t: len(index[t]))
    return {"lang": lang, "terms": len(index), "longest": longest}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--helpers", type=int, default=HELPERS)
    args = parser.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s %(message)s")
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    lang = sorted(LANGUAGES)[rank % len(LANGUAGES)]
    builder = IndexBuilder(lang, args.helpers)
    index = builder.build(read_language(lang, LANGUAGES[lang]))
    log.info("rank %d indexed %s: %d terms", rank, lang, len(index))
    rows = [None] * world
    dist.all_gather_object(rows, report(index, lang))
    if rank == 0:
        for row in rows:
            log.info("%(lang)s: %(terms)d terms, longest list %(longest)s", row)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
