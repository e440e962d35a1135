# /// hangdoc
# launch = "python"
# requires = []
# outcome = "hang"
# causes_any = ["HD302", "HD301", "HD305"]
# culprits = [2]
# lines = [45, 90, 93, 98, 106]
# source = "https://github.com/pytorch/pytorch/issues/135712"
# ///
"""A supervisor per rank starts its worker and starts it again after a failure; workers meet in a store of the job."""
import json
import logging
import os
import pathlib
import subprocess
import sys
import tempfile
import threading
import time
from datetime import timedelta

log = logging.getLogger("supervise")
WORLD = 3
MAX_ATTEMPTS = 40
PAUSE = 0.5
SHARD_ROWS = [4_000, 6_000, 1_200_000]


class Supervisor(threading.Thread):
    """Looks after the worker of one rank."""

    def __init__(self, rank, environment):
        super().__init__(name=f"supervisor-{rank}")
        self.rank, self.environment = rank, environment
        self.attempt = 0
        self.status = None

    def run(self):
        while self.attempt < MAX_ATTEMPTS:
            env = dict(self.environment, RANK=str(self.rank), LOCAL_RANK=str(self.rank), ATTEMPT=str(self.attempt))
            self.status = subprocess.call([sys.executable, os.path.abspath(__file__)], env=env)
            if self.status == 0:
                return
            log.warning("worker of rank %d ended with %d, starting it again", self.rank, self.status)
            self.attempt += 1
            time.sleep(PAUSE)


class Mirror(threading.Thread):
    """Copies the raw shards to this host, the big one last."""

    def __init__(self, base):
        super().__init__(name="mirror", daemon=True)
        self.base = pathlib.Path(base)

    def copy(self, rank, rows):
        partial = self.base / f"shard-{rank}.tmp"
        with partial.open("w") as out:
            for i in range(rows):
                out.write(f"{i},{i * i % 977}\n")
                if i % 100_000 == 99_999:
                    out.flush()
                    os.fsync(out.fileno())
        partial.rename(partial.with_suffix(".raw"))

    def small_ones(self):
        for rank, rows in enumerate(SHARD_ROWS):
            if rows < 100_000:
                self.copy(rank, rows)

    def run(self):
        for rank, rows in enumerate(SHARD_ROWS):
            if rows >= 100_000:
                self.copy(rank, rows)


class ShardTable:
    """The row count of a shard, counted once and kept beside it."""

    def __init__(self, base, rank):
        self.path = pathlib.Path(base) / f"shard-{rank}.json"

    def rows(self):
        if not self.path.exists():
            self.index()
        return json.loads(self.path.read_text())["rows"]

    def index(self):
        raw = self.path.with_suffix(".raw")
        if raw.exists():
            self.path.write_text(json.dumps({"rows": sum(1 for _ in raw.open())}))
            return
        raise FileNotFoundError(f"neither {self.path.name} nor {raw.name} is there yet")


def worker():
    rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    attempt = int(os.environ["ATTEMPT"])
    rows = ShardTable(os.environ["JOB_DIR"], rank).rows()

    import torch
    import torch.distributed as dist

    host, port = os.environ["JOB_STORE"].split(":")
    store = dist.TCPStore(host, int(port), is_master=False, timeout=timedelta(minutes=15))
    dist.init_process_group("gloo", store=dist.PrefixStore(f"attempt/{attempt}", store), rank=rank, world_size=world)
    total = torch.tensor(rows)
    dist.all_reduce(total)
    log.info("rank %d: %d of %d rows", rank, rows, total.item())
    dist.destroy_process_group()


def supervise():
    import torch.distributed as dist

    base = pathlib.Path(os.environ.get("TMPDIR", tempfile.gettempdir())) / f"job-{os.getpid()}"
    base.mkdir(parents=True)
    store = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    env = dict(os.environ, WORLD_SIZE=str(WORLD), JOB_STORE=f"127.0.0.1:{store.port}", JOB_DIR=str(base))
    mirror = Mirror(base)
    mirror.small_ones()
    mirror.start()
    supervisors = [Supervisor(rank, env) for rank in range(WORLD)]
    for sup in supervisors:
        sup.start()
    for sup in supervisors:
        sup.join()
    return max(sup.status for sup in supervisors)


if __name__ == "__main__":
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
    if "RANK" in os.environ:
        worker()
    else:
        sys.exit(supervise())
