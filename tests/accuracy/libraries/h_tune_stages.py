# /// hangdoc
# launch = "torchrun --standalone --nproc-per-node 5"
# requires = []
# outcome = "healthy"
# watch = "--give-up-after 10"
# source = "https://github.com/vllm-project/vllm/pull/4412"
# ///
"""Three pipeline stages stream micro-batches of changing number, a scout rank searches hyper-parameters within a time budget and leaves first, a scribe writes what it is sent."""
import json
import logging
import os
import tempfile
import time
from datetime import timedelta
from pathlib import Path

import torch
import torch.distributed as dist

log = logging.getLogger("stages")
WIDTH, END = 48, -1


class Wire:
    """Sends a header with the number of rows first, so that the receiver need not know it."""

    @staticmethod
    def send(tensor, dst):
        dist.send(torch.tensor([tensor.shape[0]]), dst, tag=1)
        if tensor.shape[0]:
            dist.send(tensor.contiguous(), dst, tag=2)

    @staticmethod
    def close(dst):
        dist.send(torch.tensor([END]), dst, tag=1)

    @staticmethod
    def receive(src):
        header = torch.zeros(1, dtype=torch.long)
        dist.recv(header, src, tag=1)
        if header.item() == END:
            return None
        body = torch.zeros(header.item(), WIDTH)
        if header.item():
            dist.recv(body, src, tag=2)
        return body


def layer(seed):
    torch.manual_seed(seed)
    return torch.nn.Sequential(torch.nn.Linear(WIDTH, 4 * WIDTH), torch.nn.GELU(), torch.nn.Linear(4 * WIDTH, WIDTH))


def source(budget):
    net, until, sent = layer(0), time.monotonic() + budget, 0
    gen = torch.Generator().manual_seed(1)
    while time.monotonic() < until:
        for _ in range(int(torch.randint(1, 5, (1,), generator=gen))):
            rows = int(torch.randint(0, 64, (1,), generator=gen))
            with torch.no_grad():
                x = torch.randn(rows, WIDTH, generator=gen)
                for _ in range(40):
                    x = torch.tanh(net(x))
            Wire.send(x, 1)
            sent += 1
    Wire.close(1)
    return sent


def middle():
    net, seen = layer(1), 0
    while (x := Wire.receive(0)) is not None:
        with torch.no_grad():
            x = net(x) if len(x) else x
        Wire.send(x, 2)
        seen += 1
    Wire.close(2)
    return seen


def sink(report_to, every=200):
    net, total, seen = layer(2), 0.0, 0
    while (x := Wire.receive(1)) is not None:
        with torch.no_grad():
            total += net(x).pow(2).sum().item() if len(x) else 0.0
        seen += 1
        if seen % every == 0:
            dist.send(torch.tensor([float(seen), total]), report_to, tag=9)
    dist.send(torch.tensor([float(END), total]), report_to, tag=9)
    return seen


def scout(budget, folder):
    """Independent search; posts its answer in the store and is done."""
    until, best = time.monotonic() + budget, (float("inf"), None)
    trial = 0
    while time.monotonic() < until:
        torch.manual_seed(trial)
        lr = 10 ** (-4 * torch.rand(1).item())
        net = layer(trial)
        for _ in range(30):
            x = torch.randn(64, WIDTH)
            loss = (net(x) - x.flip(1)).pow(2).mean()
            net.zero_grad()
            loss.backward()
            for p in net.parameters():
                p.data.sub_(p.grad, alpha=lr)
        if loss.item() < best[0]:
            best = (loss.item(), lr)
        trial += 1
    (folder / "scout.json").write_text(json.dumps({"loss": best[0], "lr": best[1], "trials": trial}))
    return trial


def scribe(folder, sources):
    done, lines = 0, 0
    with open(folder / "progress.txt", "w") as out:
        while done < sources:
            note = torch.zeros(2)
            dist.recv(note, src=2, tag=9)
            done += note[0].item() == END
            out.write(f"{note.tolist()}\n")
            lines += 1
    answer = json.loads(dist.distributed_c10d._get_default_store().get("scout/answer"))
    log.info("scout found lr %.5f after %d trials", answer["lr"], answer["trials"])
    return lines


def main():
    rank = int(os.environ["RANK"])
    logging.basicConfig(level=logging.INFO, format=f"%(asctime)s r{rank} %(message)s")
    dist.init_process_group("gloo", timeout=timedelta(minutes=10))
    folder = Path(os.environ.get("TMPDIR", tempfile.gettempdir())) / "stages"
    folder.mkdir(parents=True, exist_ok=True)
    dist.barrier()
    if rank == 3:
        trials = scout(18, folder)
        dist.distributed_c10d._get_default_store().set("scout/answer", (folder / "scout.json").read_text())
        log.info("scout leaves after %d trials", trials)
        return
    count = {0: lambda: source(34), 1: middle, 2: lambda: sink(4), 4: lambda: scribe(folder, 1)}[rank]()
    log.info("handled %d", count)


if __name__ == "__main__":
    main()
