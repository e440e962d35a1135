# /// hangdoc
# launch = "torchrun --standalone --nproc-per-node 3"
# outcome = "hang"
# causes_any = ["HD103"]
# culprits = [1]
# lines = [55, 56, 71, 81, 83, 100, 116, 121, 123, 124]
# branch = ["path.exists()", "not path.exists()", "except Exception", "except AdapterError", "try:"]
# source = "https://github.com/vllm-project/vllm/issues/5531"
# ///
"""A leader that broadcasts commands to tensor-parallel workers, as inference engines do.

Worker 1 has no file of an adapter on its disk: its handler raises, the loop logs it and waits for the next command, while the
leader and the other worker are in the gather of this command's results.
"""
import json
import logging
import tempfile
from dataclasses import asdict, dataclass, field
from datetime import timedelta
from pathlib import Path

import torch
import torch.distributed as dist

log = logging.getLogger("engine")


@dataclass
class Command:
    name: str
    args: dict = field(default_factory=dict)


@dataclass
class EngineConfig:
    hidden: int = 16
    rank_r: int = 2
    adapters: tuple = ("chat", "code", "legal")


class AdapterError(RuntimeError):
    pass


class AdapterStore:
    def __init__(self, root, rank):
        self.folder = root / f"host{rank}"
        self.folder.mkdir(exist_ok=True)

    def install(self, name, cfg):
        (self.folder / f"{name}.json").write_text(json.dumps({"r": cfg.rank_r, "scale": 0.1 * len(name)}))

    def read(self, name):
        path = self.folder / f"{name}.json"
        if not path.exists():
            raise AdapterError(f"no adapter {name!r} in {self.folder}")
        return json.loads(path.read_text())


class ModelRunner:
    """What each rank does for a command; every handler ends in a collective that joins the partial results."""

    def __init__(self, cfg, store):
        self.cfg, self.rank, self.world, self.store = cfg, dist.get_rank(), dist.get_world_size(), store
        torch.manual_seed(0)
        self.weight = torch.randn(cfg.hidden, cfg.hidden)
        self.scales = {"base": 0.0}

    def collect(self, item):
        out = [None] * self.world if self.rank == 0 else None
        dist.gather_object(item, out, dst=0)
        return out

    def generate(self, prompt, adapter="base"):
        x = torch.full((1, self.cfg.hidden), float(len(prompt)))
        part = (x @ self.weight).sum() * (1 + self.scales[adapter]) / self.world
        dist.all_reduce(part)
        return self.collect(round(part.item(), 3))

    def load_adapter(self, name):
        spec = self.store.read(name)
        self.scales[name] = spec["scale"]
        return self.collect({"rank": self.rank, "adapter": name, "r": spec["r"]})

    def list_adapters(self):
        return self.collect(sorted(self.scales))

    def execute(self, command):
        return getattr(self, command.name)(**command.args)


class Leader:
    def __init__(self, runner):
        self.runner, self.failures = runner, 0

    def call(self, method, **args):
        command = Command(method, args)
        dist.broadcast_object_list([asdict(command)], src=0)
        try:
            return self.runner.execute(command)
        except AdapterError as e:
            self.failures += 1
            log.error("leader: %s", e)

    def stop(self):
        dist.broadcast_object_list([asdict(Command("stop"))], src=0)


class Worker:
    def __init__(self, runner):
        self.runner, self.handled = runner, 0

    def loop(self):
        while True:
            box = [None]
            dist.broadcast_object_list(box, src=0)
            command = Command(**box[0])
            if command.name == "stop":
                return
            try:
                self.runner.execute(command)
                self.handled += 1
            except Exception as e:
                log.warning("worker %d: %s failed: %s", self.runner.rank, command.name, e)


def serve(leader):
    for i in range(4):
        log.info("generate -> %s", leader.call("generate", prompt="x" * (3 + i)))
    for adapter in ("chat", "code", "legal"):
        log.info("load -> %s", leader.call("load_adapter", name=adapter))
        log.info("generate -> %s", leader.call("generate", prompt="hello", adapter=adapter))
    log.info("adapters: %s", leader.call("list_adapters"))
    leader.stop()


def main():
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
    torch.set_num_threads(1)
    dist.init_process_group("gloo", timeout=timedelta(minutes=30))
    rank, cfg = dist.get_rank(), EngineConfig()
    box = [tempfile.mkdtemp(prefix="adapters-") if rank == 0 else None]
    dist.broadcast_object_list(box, src=0)
    store = AdapterStore(Path(box[0]), rank)
    for name in cfg.adapters[: 2 if rank == 1 else 3]:
        store.install(name, cfg)
    runner = ModelRunner(cfg, store)
    serve(Leader(runner)) if rank == 0 else Worker(runner).loop()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
