# /// hangdoc
# launch = "torchrun --standalone --nproc-per-node 3"
# outcome = "hang"
# causes_any = ["HD507"]
# culprits = [2]
# lines = [47, 49, 50, 55, 56, 84]
# branch = ["self.unsent >= self.window"]
# source = "Python forum classic: a buffered socket file that is not flushed before the reply is read"
# ///
"""One tokenizer for the whole job: rank 0 serves it over a socket, the other ranks ask line by line."""
import argparse
import logging
import os
import socket
import socketserver
import threading

import torch
import torch.distributed as dist

log = logging.getLogger("tokens")


class Handler(socketserver.StreamRequestHandler):
    def handle(self):
        for line in self.rfile:
            words = line.decode().split()
            self.wfile.write((" ".join(str(sum(map(ord, word)) % 512) for word in words) + "\n").encode())


class Service(socketserver.ThreadingTCPServer):
    daemon_threads, allow_reuse_address = True, True

    def start(self):
        threading.Thread(target=self.serve_forever, daemon=True, name="tokens").start()
        return self.server_address[1]


class Client:
    """Keeps several requests on the way, since the round trip is the slow part."""

    def __init__(self, port, window):
        self.stream = socket.create_connection(("127.0.0.1", port)).makefile("rw")
        self.window, self.unsent = window, 0

    def ask(self, text):
        self.stream.write(text + "\n")
        self.unsent += 1
        if self.unsent >= self.window:
            self.stream.flush()
            self.unsent = 0

    def encode(self, documents):
        for document in documents:
            self.ask(document)
        return [[int(token) for token in self.stream.readline().split()] for _ in documents]


class Local:
    def encode(self, documents):
        return [[sum(map(ord, word)) % 512 for word in document.split()] for document in documents]


class Corpus:
    """Most batches come from the library, every tenth from the rank's own crawl; equal texts are taken once."""

    STRIDES = (7, 9, 40, 11)

    def __init__(self, rank, batch):
        self.stride, self.batch = self.STRIDES[rank % len(self.STRIDES)], batch

    def text(self, number):
        return f"document {number} of the collection " + "lorem ipsum " * (number % 5)

    def documents(self, step):
        stride = self.stride if step % 10 == 9 else 7
        numbers = [(step + row * stride) % 1000 for row in range(self.batch)]
        return [self.text(number) for number in dict.fromkeys(numbers)]


def train(encoder, corpus, steps):
    model = torch.nn.EmbeddingBag(512, 16, mode="mean")
    for step in range(steps):
        rows = encoder.encode(corpus.documents(step))
        offsets = torch.tensor([0] + [len(row) for row in rows[:-1]]).cumsum(0)
        loss = model(torch.tensor([token for row in rows for token in row]), offsets).square().mean()
        model.zero_grad()
        loss.backward()
        dist.all_reduce(model.weight.grad)
        if step % 20 == 0:
            log.info("step %d loss %.3f", step, loss.item())


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--window", type=int, default=8)
    args = parser.parse_args()
    logging.basicConfig(level=logging.INFO, format=f"[{os.environ['RANK']}] %(message)s")
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    port = torch.tensor([Service(("127.0.0.1", 0), Handler).start() if rank == 0 else 0])
    dist.broadcast(port, src=0)
    encoder = Local() if rank == 0 else Client(int(port), args.window)
    train(encoder, Corpus(rank, args.batch), args.steps)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
