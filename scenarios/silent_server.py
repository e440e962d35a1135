"""A DataLoader worker asks a server that never answers.

Every sample is fetched over a socket without a timeout. The server of rank 1 accepts the connection and
stays silent: the worker waits for the answer, rank 1 waits for the worker's batch, rank 0 waits for rank 1.
"""

# /// hangdoc
# launch = "torchrun --standalone --nproc-per-node 2"
# watch = "--give-up-after 8"
# outcome = "hang"
# cause = "HD503"
# culprits = [1]
# lines = [39, 59]
# code = ["return connection.recv(64)", "for batch in loader:"]
# source = "constructed"
# ///

import os
import socket
import threading

import torch
import torch.distributed as dist
from torch.utils.data import DataLoader, Dataset

FIXED = os.environ.get("FIXED") == "1"


class Remote(Dataset):
    def __init__(self, address):
        self.address = address

    def __len__(self):
        return 8

    def fetch(self, index):
        with socket.create_connection(self.address) as connection:
            connection.sendall(index.to_bytes(4, "big"))
            return connection.recv(64)

    def __getitem__(self, index):
        return float(int.from_bytes(self.fetch(index), "big"))


def serve(listener, silent_after):
    kept = []
    for number in range(1 << 30):
        connection, _ = listener.accept()
        kept.append(connection)
        if number < silent_after:
            connection.sendall(connection.recv(4))


def train(rank):
    listener = socket.create_server(("127.0.0.1", 0))
    silent_after = 3 if rank == 1 and not FIXED else 1 << 30
    threading.Thread(target=serve, args=(listener, silent_after), daemon=True).start()
    loader = DataLoader(Remote(listener.getsockname()), batch_size=2, num_workers=1)
    for batch in loader:
        dist.all_reduce(batch)


def main():
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    train(dist.get_rank())
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
