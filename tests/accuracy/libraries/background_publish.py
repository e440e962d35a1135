# /// hangdoc
# launch = "torchrun --standalone --nproc-per-node 3"
# outcome = "hang"
# causes_any = ["HD108", "HD106", "HD107", "HD112"]
# culprits_any = [[0, 1, 2], [0], [1], [2], [0, 1], [0, 2], [1, 2]]
# lines = [48, 52, 74, 88, 92]
# source = "KempnerInstitute/KempnerForge#104"
# ///
"""Training that publishes its checkpoints from a background thread, once all ranks have uploaded their part."""
import argparse
import concurrent.futures
import copy
import logging
import os
import pathlib
import tempfile
import time

import torch
import torch.distributed as dist

log = logging.getLogger("publish")


class ObjectStorage:
    def __init__(self, folder, seconds_per_upload):
        self.folder, self.seconds = pathlib.Path(folder), seconds_per_upload

    def upload(self, name, state):
        path = self.folder / f"{name}.part"
        torch.save(state, path)
        time.sleep(self.seconds)
        return path

    def finish(self, path):
        path.rename(path.with_suffix(".pt"))


class Publisher:
    """Uploads in the background, so that training does not wait for the network."""

    def __init__(self, storage):
        self.storage = storage
        self.pool = concurrent.futures.ThreadPoolExecutor(1, thread_name_prefix="publish")
        self.latest = None

    def submit(self, step, state):
        self.latest = self.pool.submit(self.publish, step, copy.deepcopy(state))

    def publish(self, step, state):
        path = self.storage.upload(f"step{step:06d}", state)
        dist.barrier()
        self.storage.finish(path)
        return step

    def close(self):
        if self.latest is not None:
            log.info("published up to step %d", self.latest.result())
        self.pool.shutdown()


class Model(torch.nn.Module):
    def __init__(self, width):
        super().__init__()
        self.up = torch.nn.Linear(width, 4 * width)
        self.down = torch.nn.Linear(4 * width, width)

    def forward(self, x):
        return x + self.down(torch.relu(self.up(x)))


def average(model, world):
    flat = torch.cat([parameter.grad.reshape(-1) for parameter in model.parameters()])
    dist.all_reduce(flat)
    offset = 0
    for parameter in model.parameters():
        count = parameter.numel()
        parameter.grad.copy_(flat[offset:offset + count].reshape(parameter.shape) / world)
        offset += count


def train(model, publisher, args, world):
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    for step in range(args.steps):
        loss = model(torch.randn(8, args.width)).square().mean()
        optimizer.zero_grad()
        loss.backward()
        average(model, world)
        optimizer.step()
        time.sleep(0.01)
        if step % args.publish_every == args.publish_every - 1:
            publisher.submit(step, model.state_dict())


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=600)
    parser.add_argument("--publish-every", type=int, default=50)
    parser.add_argument("--width", type=int, default=16)
    args = parser.parse_args()
    logging.basicConfig(level=logging.INFO, format=f"[{os.environ['RANK']}] %(message)s")
    torch.set_num_threads(1)
    torch.manual_seed(0)
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    remote = rank == 2
    storage = ObjectStorage(tempfile.mkdtemp(prefix="storage-"), seconds_per_upload=0.6 if remote else 0.1)
    publisher = Publisher(storage)
    train(Model(args.width), publisher, args, world)
    publisher.close()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
