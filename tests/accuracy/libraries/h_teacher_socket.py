# /// hangdoc
# launch = "torchrun --standalone --nproc-per-node 3"
# outcome = "healthy"
# source = "own: a teacher server that idles"
# ///
"""Distillation: the last rank answers requests for teacher logits over a socket and is asked rarely."""
import argparse
import os
import socket
import struct
import time

import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F


def read(connection, size):
    data = b""
    while len(data) < size:
        piece = connection.recv(size - len(data))
        if not piece:
            return None
        data += piece
    return data


class Teacher:
    def __init__(self, port, clients):
        torch.manual_seed(77)
        self.model = nn.Sequential(nn.Linear(8, 64), nn.Tanh(), nn.Linear(64, 4)).eval()
        self.socket = socket.create_server(("127.0.0.1", port))
        self.clients = clients

    @torch.no_grad()
    def answer(self, connection):
        header = read(connection, 4)
        if header is None:
            return False
        rows = struct.unpack("<I", header)[0]
        x = torch.frombuffer(bytearray(read(connection, rows * 32)), dtype=torch.float32).view(rows, 8)
        connection.sendall(self.model(x).numpy().tobytes())
        return True

    def serve(self):
        connections = [self.socket.accept()[0] for _ in range(self.clients)]
        while connections:
            connections = [c for c in connections if self.answer(c)]
        self.socket.close()


class Student:
    def __init__(self, port, rank, group):
        self.connection = socket.create_connection(("127.0.0.1", port))
        self.rank, self.group = rank, group
        torch.manual_seed(0)
        self.model = nn.Linear(8, 4)
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.05)

    def ask(self, x):
        self.connection.sendall(struct.pack("<I", len(x)) + x.numpy().tobytes())
        return torch.frombuffer(bytearray(read(self.connection, len(x) * 16)), dtype=torch.float32).view(len(x), 4)

    def round(self, x, inner, pause):
        target = self.ask(x).softmax(1)
        for _ in range(inner):
            loss = F.kl_div(self.model(x).log_softmax(1), target, reduction="batchmean")
            self.optimizer.zero_grad()
            loss.backward()
            for p in self.model.parameters():
                dist.all_reduce(p.grad, group=self.group)
            self.optimizer.step()
            time.sleep(pause / inner)
        return loss.item()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--pause", type=float, default=11)
    args = parser.parse_args()
    dist.init_process_group("gloo")
    rank, last = dist.get_rank(), dist.get_world_size() - 1
    students = dist.new_group(list(range(last)))
    port = 21000 + int(os.environ["MASTER_PORT"]) % 9000
    teacher = Teacher(port, last) if rank == last else None
    dist.barrier()
    if teacher:
        teacher.serve()
    else:
        student = Student(port, rank, students)
        for number in range(args.rounds):
            loss = student.round(torch.randn(32, 8), inner=3, pause=args.pause)
            if rank == 0:
                print(f"round {number} loss {loss:.4f}", flush=True)
        student.connection.close()
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
