# /// hangdoc
# launch = "torchrun --standalone --nproc-per-node 4"
# outcome = "hang"
# causes_any = ["HD303"]
# culprits_any = [[3]]
# lines = [50, 71, 78, 88, 95]
# branch = ["ROLES[role]", "role_of(rank, cfg)", "rank < cfg.readers", "\"reader\" if rank < cfg.readers else \"writer\""]
# source = "https://github.com/pytorch/pytorch/issues/25390"
# ///
"""Tokenisation job: three readers count tokens together, one writer collects. Readers make a group for themselves, the writer, no member, does not.
All goes well until a second group (for hand-over) is made: the groups' numbers no longer agree between the ranks."""
import logging
from collections import Counter
from dataclasses import dataclass
from datetime import timedelta

import torch
import torch.distributed as dist

log = logging.getLogger("tokenise")


@dataclass
class JobConfig:
    readers: int = 3
    documents: int = 36
    vocab: int = 32
    rounds: int = 3
    timeout: timedelta = timedelta(minutes=30)


class Role:
    def __init__(self, cfg: JobConfig, rank: int):
        self.cfg, self.rank = cfg, rank
        self.total = torch.zeros(cfg.vocab, dtype=torch.long)
        self.setup()

    def setup(self):
        pass

    def round(self, n: int) -> torch.Tensor:
        raise NotImplementedError

    def finish(self, handover):
        raise NotImplementedError


class Reader(Role):
    def setup(self):
        self.peers = dist.new_group(ranks=list(range(self.cfg.readers)), timeout=self.cfg.timeout)

    def _documents(self, n):
        g = torch.Generator().manual_seed(100 * n + self.rank)
        for _ in range(self.cfg.documents // self.cfg.readers):
            yield torch.randint(0, self.cfg.vocab, (40,), generator=g).tolist()

    def round(self, n):
        counts = Counter(token for doc in self._documents(n) for token in doc)
        vector = torch.tensor([counts.get(i, 0) for i in range(self.cfg.vocab)])
        dist.all_reduce(vector, group=self.peers)
        self.total += vector
        return vector

    def finish(self, handover):
        if self.rank == 0:
            dist.send(self.total, dst=self.cfg.readers, group=handover)


class Writer(Role):
    def setup(self):
        self.rows = []

    def round(self, n):
        self.rows.append({"round": n, "status": "open"})
        return torch.zeros(self.cfg.vocab, dtype=torch.long)

    def finish(self, handover):
        dist.recv(self.total, src=0, group=handover)
        for row in self.rows:
            row["status"] = "closed"
        log.info("vocabulary of %d tokens written", int(self.total.sum()))


ROLES = {"reader": Reader, "writer": Writer}


def role_of(rank: int, cfg: JobConfig) -> str:
    return "reader" if rank < cfg.readers else "writer"


class Job:
    def __init__(self, cfg: JobConfig):
        self.cfg, rank = cfg, dist.get_rank()
        role = role_of(rank, cfg)
        self.worker = ROLES[role](cfg, rank)

    def run(self):
        for n in range(self.cfg.rounds):
            counted = self.worker.round(n)
            seen = counted.sum()
            dist.all_reduce(seen, op=dist.ReduceOp.MAX)
            log.info("[rank %d] round %d: %d tokens", self.worker.rank, n, int(seen))

    def hand_over(self):
        handover = dist.new_group(ranks=[0, self.cfg.readers], timeout=self.cfg.timeout)
        self.worker.finish(handover)
        dist.barrier()


def main():
    logging.basicConfig(level=logging.INFO)
    torch.set_num_threads(1)
    cfg = JobConfig()
    dist.init_process_group("gloo", timeout=cfg.timeout)
    job = Job(cfg)
    job.run()
    job.hand_over()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
