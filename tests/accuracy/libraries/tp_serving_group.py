# /// hangdoc
# launch = "torchrun --standalone --nproc-per-node 4"
# requires = []
# outcome = "hang"
# causes_any = ["HD103"]
# culprits = [3]
# lines = [38, 81, 91, 96, 97]
# source = "https://github.com/NVIDIA/TensorRT-LLM/pull/16592"
# ///
"""A small text scorer served over HTTP by rank 0, its embedding split over the vocabulary of all ranks."""
import http.client
import json
import logging
import queue
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import torch
import torch.distributed as dist

log = logging.getLogger("serve")
VOCAB, DIM = 1002, 8
SPECIAL = {"<bos>": 0, "<eos>": 1001, "<pad>": 1002, "<tool>": 1003}
PROMPTS = [[0, 17, 43, 1001], [0, 500, 501, 502, 1001], [0, 5, 999, 1001], [0, 77, 1003, 88, 1001], [0, 9, 1001]]


class VocabShard:
    """Rows lo..hi of the embedding; the last rank's shard ends where the table ends."""

    def __init__(self, rank, world):
        per = -(-(VOCAB + 1) // world)
        self.lo, self.hi = rank * per, (rank + 1) * per
        rows = min(self.hi, VOCAB) - self.lo
        self.weight = torch.randn(rows, DIM, generator=torch.Generator().manual_seed(rank))

    def __call__(self, ids):
        mine = (ids >= self.lo) & (ids < self.hi)
        local = self.weight[(ids - self.lo)[mine]]
        out = torch.zeros(len(ids), DIM)
        out[mine] = local
        return out


class Frontend(BaseHTTPRequestHandler):
    inbox: queue.Queue = queue.Queue()

    def do_POST(self):
        ids = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        answer = queue.Queue(1)
        self.inbox.put((ids, answer))
        body = json.dumps(answer.get()).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, fmt, *args):
        log.debug(fmt, *args)


def traffic(port):
    for ids in PROMPTS:
        conn = http.client.HTTPConnection("127.0.0.1", port)
        conn.request("POST", "/score", json.dumps(ids))
        log.info("scores for %s: %s", ids, conn.getresponse().read()[:60])
        conn.close()
    Frontend.inbox.put((None, None))


class Engine:
    def __init__(self):
        self.rank, self.world = dist.get_rank(), dist.get_world_size()
        self.shard = VocabShard(self.rank, self.world)
        self.reply = None

    def next_batch(self):
        box = [None]
        if self.rank == 0:
            ids, self.reply = Frontend.inbox.get()
            box = [ids]
        dist.broadcast_object_list(box, src=0)
        return box[0]

    def score(self, ids):
        hidden = self.shard(torch.tensor(ids))
        dist.all_reduce(hidden)
        return hidden.sum(1).tolist()

    def loop(self):
        while True:
            batch = self.next_batch()
            if batch is None:
                return
            try:
                scores = self.score(batch)
            except Exception as err:
                log.exception("rank %d: request dropped", self.rank)
                scores = {"error": str(err)}
            if self.reply is not None:
                self.reply.put(scores)


def main():
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
    dist.init_process_group("gloo")
    engine = Engine()
    if engine.rank == 0:
        server = ThreadingHTTPServer(("127.0.0.1", 0), Frontend)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        threading.Thread(target=traffic, args=(server.server_port,), daemon=True).start()
    engine.loop()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
