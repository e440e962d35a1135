"""A server that nobody asks anything for a while: rank 0 listens for requests, rank 1 waits for its work."""

import socket
import subprocess
import sys

import torch
import torch.distributed as dist

QUIET_SECONDS = 8  # one look, and not a second one that meets the next request
ASK = "import socket, sys, time; time.sleep(float(sys.argv[2])); socket.create_connection(('127.0.0.1', sys.argv[1]))"


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
        port = str(listening.getsockname()[1])
        asking = [subprocess.Popen([sys.executable, "-c", ASK, port, str(wait)]) for wait in (0, QUIET_SECONDS)]
        serve(listening)
        for process in asking:
            process.wait()
    print("well ended")
else:
    follow()
dist.destroy_process_group()
