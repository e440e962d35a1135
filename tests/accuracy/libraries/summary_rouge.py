# /// hangdoc
# launch = "torchrun --standalone --nproc-per-node 3"
# requires = ["torchmetrics"]
# outcome = "hang"
# causes_any = ["HD102", "HD101", "HD109", "HD106"]
# culprits_any = [[1], [0, 2]]
# lines = [49, 67, 68]
# branch = ["len(reference.split()) < self.min_words", "for document, reference in pairs", "document, reference in pairs"]
# source = "https://github.com/Lightning-AI/torchmetrics/pull/3503"
# ///
"""Score a lead-sentence summariser on a news collection with ROUGE."""
import json
import logging
import os
import random
import tempfile
from pathlib import Path

import torch.distributed as dist
from torchmetrics.text.rouge import ROUGEScore

log = logging.getLogger("summaries")
WORDS = ("the council voted late on a plan for new trams while shops near harbour asked why so little "
         "of last year money went to roads schools or parks and mayor said work starts soon").split()


def write_collection(folder, parts, size):
    rng = random.Random(29)
    for part in range(parts):
        with open(folder / f"part-{part:03d}.jsonl", "w") as out:
            for _ in range(size):
                body = ". ".join(" ".join(rng.choices(WORDS, k=rng.randint(5, 12))) for _ in range(6))
                headline = " ".join(rng.choices(WORDS, k=rng.randint(2, 14)))
                out.write(json.dumps({"body": body, "summary": headline}) + "\n")


class Collection:
    """The news items of one part that are worth scoring."""

    def __init__(self, path, min_words):
        self.path = path
        self.min_words = min_words

    def __iter__(self):
        with open(self.path) as lines:
            for line in lines:
                item = json.loads(line)
                document, reference = item["body"], item["summary"]
                if len(reference.split()) < self.min_words:
                    continue
                yield document, reference


class LeadSummariser:
    def __init__(self, words):
        self.words = words

    def __call__(self, document):
        return " ".join(document.split(". ")[0].split()[: self.words])


class Scorer:
    def __init__(self, group):
        self.rouge = ROUGEScore(rouge_keys=("rouge1",), process_group=group)

    def score(self, summariser, pairs):
        for document, reference in pairs:
            self.rouge.update(summariser(document), reference)
        values = self.rouge.compute()
        self.rouge.reset()
        return float(values["rouge1_fmeasure"])


class Sweep:
    """Tries several summary lengths and keeps the best one."""

    def __init__(self, scorer, collection, lengths):
        self.scorer = scorer
        self.collection = collection
        self.lengths = lengths

    def run(self):
        table = {}
        for words in self.lengths:
            table[words] = self.scorer.score(LeadSummariser(words), self.collection)
            dist.barrier()
            log.info("%d words: rouge1 %.4f", words, table[words])
        return max(table, key=table.get)


def main():
    logging.basicConfig(level=logging.INFO)
    dist.init_process_group("gloo")
    scoring = dist.new_group(backend="gloo")
    folder = Path(tempfile.gettempdir()) / f"news-{os.environ['MASTER_PORT']}"
    if dist.get_rank() == 0:
        folder.mkdir(exist_ok=True)
        write_collection(folder, dist.get_world_size(), 40)
    dist.barrier()
    collection = Collection(folder / f"part-{dist.get_rank():03d}.jsonl", min_words=5)
    best = Sweep(Scorer(scoring), collection, lengths=(4, 6, 8)).run()
    log.info("best length %d", best)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
