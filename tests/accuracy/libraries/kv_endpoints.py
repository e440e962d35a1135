# /// hangdoc
# launch = "torchrun --standalone --nproc-per-node 4"
# requires = ["yaml"]
# watch = "--give-up-after 8"
# outcome = "hang"
# causes_any = ["HD305"]
# culprits = [3]
# culprits_any = [[0, 1], [0, 1, 2]]
# lines = [63, 60, 59, 58]
# branch = ["self.site.get("]
# source = "https://github.com/ai-dynamo/nixl/pull/1907"
# ///
"""Disaggregated serving: two prefill and two decode agents publish their transfer endpoints in a store and connect."""
import json
import logging
import os
import socket
import threading
from dataclasses import dataclass
from datetime import timedelta

import torch
import torch.distributed as dist
import yaml

log = logging.getLogger("kv")
INVENTORY = """
agents:
  - {role: prefill, zone: eu-a, slot: 0}
  - {role: prefill, zone: eu-a, slot: 1}
  - {role: decode, zone: eu-a, slot: 0}
  - {role: decode, zone: eu_b, slot: 0}
"""
SITES = {"eu-a": {"separator": "/"}, "eu_b": {"separator": "/", "name_style": "dns"}}


@dataclass(frozen=True)
class Agent:
    role: str
    zone: str
    slot: int

    @property
    def path(self) -> str:
        return f"{self.zone}/{self.role}/{self.slot}"


class Directory:
    """Where agents find each other; keys live below one prefix per deployment."""

    def __init__(self, store: dist.Store, site: dict):
        self.store, self.site = dist.PrefixStore("kvx/deploy-7", store), site

    def _key(self, agent: Agent) -> str:
        return f"endpoint:{agent.path}"

    def register(self, agent: Agent, address: tuple) -> None:
        key = self._key(agent)
        if self.site.get("name_style") == "dns":
            key = key.replace("_", "-")
        self.store.set(key, json.dumps(address))

    def resolve(self, agent: Agent) -> tuple:
        return tuple(json.loads(self.store.get(self._key(agent))))


class Transfer(threading.Thread):
    """Answers one greeting per connection; stands for the agent's data plane."""

    def __init__(self):
        super().__init__(daemon=True)
        self.sock = socket.create_server(("127.0.0.1", 0))

    def run(self) -> None:
        while True:
            conn, _ = self.sock.accept()
            with conn:
                conn.sendall(b"kvx-ready")


def connect(address: tuple) -> None:
    with socket.create_connection(address, timeout=10) as conn:
        assert conn.recv(16) == b"kvx-ready"


def open_store() -> dist.Store:
    port = [None]
    store = None
    if dist.get_rank() == 0:
        store = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False, timeout=timedelta(minutes=20))
        port = [store.port]
    dist.broadcast_object_list(port, src=0)
    return store or dist.TCPStore("127.0.0.1", port[0], is_master=False, timeout=timedelta(minutes=20))


def blocks_for(agent: Agent) -> torch.Tensor:
    return torch.full((4, 8), float(agent.slot + 1))


def main() -> None:
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
    dist.init_process_group("gloo", timeout=timedelta(minutes=20))
    agents = [Agent(**entry) for entry in yaml.safe_load(INVENTORY)["agents"]]
    me = agents[dist.get_rank()]
    plane = Transfer()
    plane.start()
    directory = Directory(open_store(), SITES[me.zone])
    directory.register(me, plane.sock.getsockname())
    peers = [a for a in agents if a.role != me.role]
    for peer in peers:
        connect(directory.resolve(peer))
        log.info("%s connected to %s", me.path, peer.path)
    total = blocks_for(me)
    dist.all_reduce(total)
    log.info("%s: %s", me.path, os.getpid())
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
