# /// hangdoc
# launch = "torchrun --standalone --nproc-per-node 6"
# requires = ["numpy"]
# outcome = "hang"
# causes_any = ["HD202"]
# culprits = [2]
# culprits_any = [[3], [2, 3]]
# lines = [92, 62, 56, 36, 75]
# branch = ["range(first, last + 1)", "src != self.rank", "hi > lo"]
# source = "https://github.com/hpc/mpifileutils/pull/26"
# ///
"""Filters documents shard by shard, evens out the number of documents between the ranks, then trains on them."""
import logging

import numpy as np
import torch
import torch.distributed as dist

log = logging.getLogger("rebalance")
CRAWLS = ["2023-06", "2023-14", "2023-23", "2021-31", "2023-40", "2023-50"]
ROWS = {"2023-06": 90, "2023-14": 24, "2023-23": 66, "2021-31": 60, "2023-40": 112, "2023-50": 108}
DIM = 16


class Shard:
    """The documents of one crawl: an embedding and a quality score for each."""

    def __init__(self, crawl: str):
        rng = np.random.default_rng(int(crawl.replace("-", "")))
        rows = ROWS[crawl]
        self.docs = rng.normal(size=(rows, DIM)).astype(np.float32)
        markup = 0.6 if crawl < "2022" else 0.05  # extractor of those days left the markup in
        self.quality = 0.55 + 0.4 * rng.random(rows) - markup

    def filtered(self, floor: float) -> torch.Tensor:
        keep = self.quality > floor
        return torch.from_numpy(self.docs[keep])


class Rebalancer:
    """Moves rows so that rank r ends with rows [r*n/size, (r+1)*n/size) of the global order."""

    def __init__(self):
        self.rank, self.size = dist.get_rank(), dist.get_world_size()

    def _layout(self, rows: int) -> tuple[np.ndarray, np.ndarray]:
        counts = [torch.zeros(1, dtype=torch.long) for _ in range(self.size)]
        dist.all_gather(counts, torch.tensor([rows]))
        have = np.concatenate([[0], np.cumsum([int(c) for c in counts])])
        want = np.linspace(0, have[-1], self.size + 1).astype(int)
        return have, want

    def _outgoing(self, have, want):
        for dst in range(self.size):
            lo, hi = max(have[self.rank], want[dst]), min(have[self.rank + 1], want[dst + 1])
            if dst != self.rank and hi > lo:
                yield dst, lo - have[self.rank], hi - have[self.rank]

    def _incoming(self, have, want):
        first = int(np.searchsorted(have, want[self.rank], side="right")) - 1
        last = int(np.searchsorted(have, want[self.rank + 1], side="left")) - 1
        for src in range(first, last + 1):
            if src != self.rank:
                yield src

    def run(self, rows: torch.Tensor) -> torch.Tensor:
        have, want = self._layout(len(rows))
        ops, sends, heads = [], [], {}
        for dst, lo, hi in self._outgoing(have, want):
            head = torch.tensor([hi - lo])
            sends.append((dst, rows[lo:hi].contiguous(), head))
            ops.append(dist.P2POp(dist.isend, head, dst))
        for src in self._incoming(have, want):
            heads[src] = torch.zeros(1, dtype=torch.long)
            ops.append(dist.P2POp(dist.irecv, heads[src], src))
        self._flush(ops)
        ops, parts = [], {}
        for dst, block, _ in sends:
            ops.append(dist.P2POp(dist.isend, block, dst))
        for src, head in heads.items():
            parts[src] = torch.empty(int(head), DIM)
            ops.append(dist.P2POp(dist.irecv, parts[src], src))
        self._flush(ops)
        lo, hi = max(have[self.rank], want[self.rank]), min(have[self.rank + 1], want[self.rank + 1])
        if hi > lo:
            parts[self.rank] = rows[lo - have[self.rank] : hi - have[self.rank]]
        return torch.cat([parts[k] for k in sorted(parts)])

    @staticmethod
    def _flush(ops) -> None:
        for work in dist.batch_isend_irecv(ops) if ops else []:
            work.wait()


def train(rows: torch.Tensor, steps: int = 20) -> None:
    weight = torch.zeros(DIM)
    for _ in range(steps):
        grad = rows.T @ (rows @ weight - rows.sum(1)) / len(rows)
        dist.all_reduce(grad)
        weight -= 0.1 * grad / dist.get_world_size()


def main() -> None:
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    rows = Shard(CRAWLS[rank]).filtered(floor=0.4)
    log.info("rank %d: crawl %s keeps %d documents", rank, CRAWLS[rank], len(rows))
    rows = Rebalancer().run(rows)
    log.info("rank %d: %d documents after the exchange", rank, len(rows))
    train(rows)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
