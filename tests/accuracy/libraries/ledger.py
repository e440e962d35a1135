# /// hangdoc
# launch = "torchrun --standalone --nproc-per-node 3"
# requires = []
# outcome = "hang"
# causes_any = ["HD505", "HD112"]
# culprits = [1]
# lines = [35, 37, 38, 51, 63, 70, 71]
# source = "https://github.com/patroni/patroni/pull/3413"
# ///
"""Every rank books events in a ledger, prints its state twice a second and settles the balance with the others."""
import hashlib
import logging
import random
import signal
import threading
import time

import torch
import torch.distributed as dist

log = logging.getLogger("ledger")
EVENTS = (400, 9000, 700)


class Ledger:
    """Amounts by account. A long list is folded: accounts that belong together become one entry."""

    def __init__(self, limit):
        self.limit = limit
        self.lock = threading.Lock()
        self.entries = []
        self.balance = 0.0

    def book(self, account, amount):
        with self.lock:
            self.entries.append((account, amount))
            if len(self.entries) > self.limit:
                self.fold()

    def fold(self):
        sums = {}
        for account, amount in self.entries:
            key = account.encode()
            for _ in range(900):
                key = hashlib.blake2b(key, digest_size=8).digest()
            sums[key] = sums.get(key, 0.0) + amount
        self.balance += sum(sums.values())
        self.entries.clear()

    def total(self):
        with self.lock:
            return self.balance + sum(amount for _, amount in self.entries)


class StatusPrinter:
    """Prints from a timer signal, so that it also works while the main program computes."""

    def __init__(self, ledger, rank, interval):
        self.ledger, self.rank, self.interval = ledger, rank, interval

    def __enter__(self):
        signal.signal(signal.SIGALRM, self.tick)
        signal.setitimer(signal.ITIMER_REAL, self.interval)
        return self

    def __exit__(self, *exc):
        signal.setitimer(signal.ITIMER_REAL, 0)

    def tick(self, signum, frame):
        log.info("rank %d: balance %.2f", self.rank, self.ledger.total())
        signal.setitimer(signal.ITIMER_REAL, self.interval)


def events(rank):
    rng = random.Random(rank)
    for number in range(EVENTS[rank % len(EVENTS)]):
        yield f"acct-{rng.randint(1, 5000)}", rng.gauss(0, 10)


def book_all(ledger, rank):
    rate = 500
    began = time.perf_counter()
    for number, (account, amount) in enumerate(events(rank), 1):
        ledger.book(account, amount)
        if rate and number % rate == 0:
            ahead = number / (rate * 4) - (time.perf_counter() - began)
            time.sleep(max(0.0, ahead))


def main():
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    ledger = Ledger(limit=4000)
    dist.barrier()
    with StatusPrinter(ledger, rank, interval=0.5):
        book_all(ledger, rank)
    balance = torch.tensor(ledger.total())
    dist.all_reduce(balance)
    log.info("rank %d: all ledgers together %.2f", rank, balance.item())
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
