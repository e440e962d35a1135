# /// hangdoc
# launch = "torchrun --standalone --nproc-per-node 4"
# outcome = "hang"
# causes_any = ["HD102", "HD101", "HD113", "HD505", "HD508", "HD702"]
# culprits = [3]
# lines = [44, 52, 64, 65, 81, 82, 102]
# branch = ["batch in self.corpus.batches(self.args.tokens, self.args.width)", "_ in range(sum(self.lengths) // tokens)", "self.received >= self.trainers"]
# source = "pytorch RPC tutorial 'Implementing Batch RPC Processing', and forum threads on its uneven trainers"
# ///
"""A parameter server over RPC that applies the mean of one gradient per trainer and answers all of them together."""
import argparse
import logging
import os
import threading

import torch
import torch.distributed.rpc as rpc

log = logging.getLogger("ps")


class ParameterServer:
    def __init__(self, trainers, width):
        self.trainers = trainers
        self.model = torch.nn.Linear(width, 1)
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.05)
        self.lock = threading.Lock()
        self.future, self.received, self.rounds = torch.futures.Future(), 0, 0
        for parameter in self.model.parameters():
            parameter.grad = torch.zeros_like(parameter)

    def weights(self):
        return {name: value.detach().clone() for name, value in self.model.named_parameters()}

    @staticmethod
    @rpc.functions.async_execution
    def update(reference, gradients):
        self = reference.local_value()
        with self.lock:
            for parameter, gradient in zip(self.model.parameters(), gradients):
                parameter.grad += gradient
            self.received += 1
            future = self.future
            if self.received >= self.trainers:
                for parameter in self.model.parameters():
                    parameter.grad /= self.trainers
                self.optimizer.step()
                self.optimizer.zero_grad(set_to_none=False)
                self.received, self.rounds = 0, self.rounds + 1
                future.set_result(self.weights())
                self.future = torch.futures.Future()
        return future


class Corpus:
    """Documents of very different length, dealt out round robin."""

    def __init__(self, rank, trainers, documents):
        lengths = [30 + (number * 37) % 90 for number in range(documents)]
        self.lengths = lengths[rank::trainers]

    def batches(self, tokens, width):
        generator = torch.Generator().manual_seed(sum(self.lengths))
        for _ in range(sum(self.lengths) // tokens):
            yield torch.randn(tokens, width, generator=generator)


class Trainer:
    def __init__(self, index, trainers, reference, args):
        self.reference, self.args = reference, args
        self.model = torch.nn.Linear(args.width, 1)
        self.corpus = Corpus(index, trainers, args.documents)

    def gradients(self, batch):
        self.model.zero_grad()
        self.model(batch).square().mean().backward()
        return [parameter.grad for parameter in self.model.parameters()]

    def run(self):
        done = 0
        for batch in self.corpus.batches(self.args.tokens, self.args.width):
            weights = rpc.rpc_sync("server", ParameterServer.update, args=(self.reference, self.gradients(batch)))
            self.model.load_state_dict(weights)
            done += 1
        return done


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--documents", type=int, default=58)
    parser.add_argument("--tokens", type=int, default=32)
    parser.add_argument("--width", type=int, default=12)
    args = parser.parse_args()
    rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    logging.basicConfig(level=logging.INFO, format=f"[{rank}] %(message)s")
    options = rpc.TensorPipeRpcBackendOptions(rpc_timeout=3600)
    rpc.init_rpc("server" if rank == 0 else f"trainer{rank}", rank=rank, world_size=world, rpc_backend_options=options)
    if rank > 0:
        reference = rpc.remote("server", shared_server, args=(world - 1, args.width))
        done = Trainer(rank - 1, world - 1, reference, args).run()
        log.info("epoch over after %d batches", done)
    rpc.shutdown(timeout=3600)


SERVER, SERVER_LOCK = [], threading.Lock()


def shared_server(trainers, width):
    with SERVER_LOCK:
        if not SERVER:
            SERVER.append(ParameterServer(trainers, width))
    return SERVER[0]


if __name__ == "__main__":
    main()
