"""A DDP job that does about all that could come in between a recorder's callback: signals whose handlers run code that
is recorded, some of which raise; threads that start and end, and one that runs to the very end; forks; workers of a
DataLoader; finalizers; code that is made anew; other tools that wake all events. The same numbers every time.

``branching.py END``: how it ends. Each rank prints one line of JSON.
"""

import gc
import json
import os
import signal
import sys
import threading
import time

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

ROUNDS = 60
WORDS = ["the", "Quick", "fox,", "jumps", "over", "12", "lazy", "dog;", "and", "7", "o'clock."] * 30
ROWS = [None, [], [1], [2, 3], [4]] * 3
NEW = """
def work(count):
    total = 0
    for number in range(count):
        if number % 3 == 0:
            total += 1
        elif total > 5 and number % 2:
            total -= 1
    return total
"""


class Interrupted(Exception):
    pass


def decide(number, row):
    if row is None or not row:
        return 0
    if number % 2 == 0:
        return 1
    return -1 if number > 3 else 2


def branching():
    return sum(decide(number, row) for number, row in enumerate(ROWS))


def preprocess():
    counts = {}
    for word in WORDS:
        word = word.strip(",;.").lower()
        if word.isdigit():
            continue
        if len(word) > 2 and word not in ("the", "and"):
            counts[word] = counts.get(word, 0) + 1
    return len(counts)


def new_work():
    names = {}
    exec(compile(NEW, __file__, "exec"), names)
    return names["work"]


class Final:
    def __del__(self):
        branching()


class Data(torch.utils.data.Dataset):
    def __len__(self):
        return 8

    def __getitem__(self, index):
        return float(preprocess() + index)


alarms = raised = caught = 0
raising = False


def handle(*_):
    global alarms, raised, raising
    alarms += 1
    branching()
    if raising:
        raising = False
        raised += 1
        raise Interrupted


def interrupted():
    """Code that is recorded runs until a handler raises in it."""
    global raising, caught
    try:
        raising = True
        while True:
            new_work()(60)
    except Interrupted:
        caught += 1


def short():
    branching()
    Final()
    new_work()(20)


def spin(over):
    while not over.is_set():
        preprocess()
        new_work()(50)
        time.sleep(0.001)


def forked():
    """What a child computes."""
    pid = os.fork()
    if not pid:
        try:
            os._exit(branching() + preprocess() + new_work()(30) & 127)
        finally:
            os._exit(255)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def main():
    dist.init_process_group("gloo")
    torch.manual_seed(0)
    layers = torch.nn.Sequential(torch.nn.Linear(64, 128), torch.nn.ReLU(), torch.nn.Linear(128, 8))
    model = DistributedDataParallel(layers)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    batch = torch.randn(32, 64)
    monitoring = getattr(sys, "monitoring", None)
    tools = [monitoring.get_tool(tool) for tool in range(6)]
    over, found = threading.Event(), []
    threads = [threading.Thread(target=spin, args=(over,), daemon=not number) for number in range(2)]
    for thread in threads:
        thread.start()
    signal.signal(signal.SIGALRM, handle)
    signal.setitimer(signal.ITIMER_REAL, 0.003, 0.003)
    for number in range(ROUNDS):
        interrupted()
        optimizer.zero_grad()
        loss = model(batch).pow(2).mean()
        loss.backward()
        optimizer.step()
        shorts = [threading.Thread(target=short) for _ in range(3)]
        for thread in shorts:
            thread.start()
        found.append([loss.item(), branching(), preprocess(), new_work()(30)])
        if number % 10 == 0:
            found.append(forked())
        if number % 30 == 20:
            loader = torch.utils.data.DataLoader(Data(), num_workers=2, batch_size=2)
            found.append([batch.tolist() for batch in loader])
        if number % 7 == 0:
            monitoring.restart_events()
            gc.collect()
        for thread in shorts:
            thread.join()
    over.set()
    signal.setitimer(signal.ITIMER_REAL, 0)
    threads[1].join()
    same = {"found": found, "caught": caught == raised == ROUNDS}
    print(json.dumps({"rank": dist.get_rank(), "same": same, "tools": tools, "alarms": alarms}), flush=True)
    dist.barrier()
    if sys.argv[1] == "running":
        threading.Thread(target=lambda: [preprocess() for _ in iter(int, 1)], daemon=True).start()
    dist.destroy_process_group()
    if sys.argv[1] == "at once":
        raise SystemExit(0)


main()
