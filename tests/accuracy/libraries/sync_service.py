# /// hangdoc
# launch = "torchrun --standalone --nproc-per-node 4"
# requires = ["requests"]
# outcome = "hang"
# causes_any = ["HD507"]
# culprits = [0]
# culprits_any = [[1], [0, 1]]
# lines = [27, 51, 52, 69, 72, 77, 80, 100, 101]
# watch = "--give-up-after 8"
# source = "https://github.com/meta-pytorch/torchcomms/pull/3121"
# ///
"""Rank 0 publishes new weights over HTTP; one canary rank fetches and checks them first, then the others follow."""
import io, logging
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer

import requests
import torch
import torch.distributed as dist
from torch import nn

log = logging.getLogger("sync")
CANARY = 1


class WeightHandler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    model: nn.Module
    version = 0

    def do_GET(self):
        if self.path == "/version":
            body = str(type(self).version).encode()
        else:
            buffer = io.BytesIO()
            torch.save(self.model.state_dict(), buffer)
            body = buffer.getvalue()
        self.send_response(200)
        self.send_header("Content-Type", "application/octet-stream")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, fmt, *args):
        log.debug("http: " + fmt, *args)


class Publisher:
    def __init__(self, model):
        WeightHandler.model = model
        self.server = HTTPServer(("127.0.0.1", 0), WeightHandler)
        self.thread = threading.Thread(target=self.server.serve_forever, name="weights-http", daemon=True)
        self.thread.start()

    @property
    def url(self):
        return f"http://127.0.0.1:{self.server.server_port}"

    def publish(self, version):
        WeightHandler.version = version


class Subscriber:
    """Fetches weights. The canary asks several things in a row and keeps its connection for that."""

    def __init__(self, rank, url, model):
        self.rank, self.url, self.model = rank, url, model
        if self.rank == CANARY:
            self.session = requests.Session()

    def fetch(self, http):
        reply = http.get(f"{self.url}/weights")
        reply.raise_for_status()
        self.model.load_state_dict(torch.load(io.BytesIO(reply.content)))

    def check(self, expected):
        version = int(self.session.get(f"{self.url}/version").text)
        if version != expected:
            raise RuntimeError(f"canary got version {version}, expected {expected}")
        self.fetch(self.session)
        return all(torch.isfinite(p).all() for p in self.model.parameters())


def build_model(seed):
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(32, 64), nn.ReLU(), nn.Linear(64, 4))


def sync(rank, version, publisher, subscriber):
    good = torch.ones(())
    if rank == 0:
        publisher.publish(version)
    dist.barrier()
    if rank == CANARY:
        good.fill_(subscriber.check(version))
    dist.all_reduce(good, op=dist.ReduceOp.MIN)
    if not good:
        return False
    if rank not in (0, CANARY):
        subscriber.fetch(requests)
    dist.barrier()
    return True


def main():
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
    logging.getLogger("urllib3").setLevel(logging.WARNING)
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    model = build_model(seed=rank)
    publisher = Publisher(model) if rank == 0 else None
    where = [publisher.url if publisher else None]
    dist.broadcast_object_list(where, src=0)
    subscriber = Subscriber(rank, where[0], model) if rank else None
    for version in range(1, 4):
        done = sync(rank, version, publisher, subscriber)
        log.info("rank %d: version %d %s", rank, version, "in use" if done else "refused")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
