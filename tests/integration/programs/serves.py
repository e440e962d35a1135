"""A server that nobody asks anything for a while: rank 0 listens for requests, rank 1 waits for its work."""

import os
import socket
import threading

import torch
import torch.distributed as dist

QUIET_SECONDS = float(os.environ.get("PAUSE", "8"))


def serve(server):
    for _ in range(2):
        connection, _ = server.accept()
        connection.close()
        dist.broadcast(torch.ones(1), src=0)


def follow():
    for _ in range(2):
        dist.broadcast(torch.zeros(1), src=0)


dist.init_process_group("gloo")
if dist.get_rank() == 0:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        for wait in (0, QUIET_SECONDS):
            threading.Timer(wait, socket.create_connection, [listening.getsockname()]).start()
        serve(listening)
    print("well ended")
else:
    follow()
dist.destroy_process_group()
