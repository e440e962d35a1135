# /// hangdoc
# launch = "python"
# requires = []
# outcome = "hang"
# causes_any = ["HD103", "HD102", "HD505"]
# culprits = [3]
# lines = [56, 64, 73, 74, 76, 85]
# source = "https://github.com/python/cpython/issues/123899"
# ///
"""Four processes exchange rows through two shared buffers that change roles after every round, then sum up by gloo."""
import json
import logging
import os
import pathlib
import random
import tempfile
from dataclasses import dataclass

import torch
import torch.distributed as dist
import torch.multiprocessing as mp

log = logging.getLogger("swap")


@dataclass
class Plan:
    world: int = 4
    rounds: int = 12
    width: int = 64
    folder: str = ""


def write_records(plan):
    """One file of records a process; the values come from an old device that writes 'NaN' by words."""
    for rank in range(plan.world):
        rng = random.Random(rank)
        records = []
        for number in range(plan.rounds):
            value = f"{rng.gauss(0, 1):.4f}"
            if rank == 3 and number == 7:
                value = "over"
            records.append({"round": number, "value": value})
        pathlib.Path(plan.folder, f"records-{rank}.json").write_text(json.dumps(records))


class Exchange:
    """Everybody writes its row of the back buffer; after the turn the back buffer is the front one."""

    def __init__(self, buffers, turn, rank):
        self.buffers, self.turn, self.rank = buffers, turn, rank
        self.back = 0

    def publish(self, row):
        self.buffers[self.back][self.rank] = row
        self.turn.wait()
        front, self.back = self.back, 1 - self.back
        return self.buffers[front]


def parse(record, width):
    text = record["value"]
    if not text.lstrip("-").replace(".", "", 1).isdigit():
        raise ValueError(f"round {record['round']}: {text!r} is no number")
    return torch.full((width,), float(text))


def consume(plan, exchange):
    records = json.loads(pathlib.Path(plan.folder, f"records-{exchange.rank}.json").read_text())
    seen = torch.zeros(plan.width)
    for record in records:
        try:
            front = exchange.publish(parse(record, plan.width))
        except ValueError as err:
            log.warning("process %d leaves a record out: %s", exchange.rank, err)
            continue
        seen += front.sum(0)
    return seen


def process_main(rank, plan, buffers, turn, port):
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
    dist.init_process_group("gloo", init_method=f"tcp://127.0.0.1:{port}", rank=rank, world_size=plan.world)
    total = consume(plan, Exchange(buffers, turn, rank))
    dist.all_reduce(total)
    if rank == 0:
        log.info("sum of all rounds %.4f", total.mean().item())
    dist.barrier()
    dist.destroy_process_group()


def free_port():
    import socket
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return sock.getsockname()[1]


def main():
    base = os.environ.get("TMPDIR", tempfile.gettempdir())
    plan = Plan(folder=tempfile.mkdtemp(prefix="swap-", dir=base))
    write_records(plan)
    context = mp.get_context("spawn")
    buffers = [torch.zeros(plan.world, plan.width).share_memory_() for _ in range(2)]
    mp.spawn(process_main, args=(plan, buffers, context.Barrier(plan.world), free_port()), nprocs=plan.world)


if __name__ == "__main__":
    main()
