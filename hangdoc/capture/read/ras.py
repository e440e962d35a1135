"""Ask NCCL's RAS service, which every rank's process offers on a local port since NCCL 2.24, for the job's status.

The service exists to be asked, as `ncclras` does: its own threads collect the answer, no rank waits for it, and nothing
in the job changes. It is asked only where every process that listens on the port is a rank of this job: all of them may
share one port, and which of them answers is chance.

The protocol (src/ras/client.cc of NCCL 2.24.3 and 2.30.7), one line each: CLIENT PROTOCOL 2 → SERVER PROTOCOL n,
TIMEOUT s → OK, SET FORMAT json → OK (since 2.28.7; an ERROR before), VERBOSE STATUS → the status, and the end.
"""

from __future__ import annotations

import ipaddress
import socket
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace

from hangdoc.capture.read import procfs, sockets
from hangdoc.capture.read.ras_answers import parse_status
from hangdoc.capture.safe.text import clean, read_link
from hangdoc.model.nccl import Communicator, CommunicatorMember, NcclStatus
from hangdoc.model.network import ListeningPort
from hangdoc.model.snapshot import Unavailable

SECONDS = 7.0
"""For the whole exchange. NCCL waits for other processes' answers, and for those that do not answer up to five seconds
longer than it is asked to."""
_NCCL_WAITS = 1
_PORT = 28028
_MOST_BYTES = 32 << 20
"""Of an answer: 4,096 ranks in five communicators each take 10 MB as JSON."""
_LONGEST_LINE = 1024
_NETWORK = "run hangdoc inside its container"


@dataclass(frozen=True, slots=True)
class RasRank:
    """A rank of the job on this host. ``address``: its NCCL_RAS_ADDR, '' by default."""

    rank: int
    pid: int
    address: str = ""


def read_ras(ranks: Sequence[RasRank], *, world_size: int | None = None) -> NcclStatus | Unavailable | None:
    """What NCCL says of the job that ``ranks`` are the processes of; None where no rank of it offers the service."""
    port = next((found for rank in ranks if (found := _port_of(rank.address)) is not None), _PORT)
    if not ranks or port not in (sockets.ports_in_use(ranks[0].pid) or ()):
        return None
    listening = _listeners(port, ranks)
    if isinstance(listening, Unavailable) or listening is None:
        return listening
    if read_link(f"/proc/{ranks[0].pid}/ns/net") != read_link("/proc/self/ns/net"):
        return _unavailable("it listens in another network namespace", _NETWORK)
    answer = ask(_host_of(listening), port)
    if isinstance(answer, Unavailable):
        return answer
    return _with_ranks(answer, ranks, world_size)


def ask(host: str, port: int, *, seconds: float = SECONDS) -> NcclStatus | Unavailable:
    """The status from the service at that address, within ``seconds``."""
    until = time.monotonic() + seconds
    try:
        with socket.create_connection((host, port), timeout=seconds) as connection:
            return parse_status(_converse(_Line(connection, until)))
    except TimeoutError:
        return _unavailable("it gave no answer in time", "ask it by hand: ncclras -v")
    except (OSError, ValueError) as error:
        return _unavailable(clean(str(error), 200) or type(error).__name__)


def _converse(line: _Line) -> str:
    line.send("CLIENT PROTOCOL 2")
    if not line.receive().upper().startswith("SERVER PROTOCOL "):
        raise ValueError("it does not speak as NCCL does")
    line.send(f"TIMEOUT {_NCCL_WAITS}")
    line.receive()
    line.send("SET FORMAT json")
    line.receive()  # an older NCCL refuses, and answers in words
    line.send("VERBOSE STATUS")
    return line.rest()


class _Line:
    """A connection that is read line by line, with a deadline and a limit."""

    def __init__(self, connection: socket.socket, until: float) -> None:
        self._connection = connection
        self._until = until
        self._received = bytearray()

    def send(self, text: str) -> None:
        self._connection.settimeout(self._left())
        self._connection.sendall(text.encode() + b"\n")

    def receive(self) -> str:
        while b"\n" not in self._received:
            if len(self._received) > _LONGEST_LINE or not self._more():
                raise ValueError("it does not speak as NCCL does")
        line, _, rest = bytes(self._received).partition(b"\n")
        self._received = bytearray(rest)
        return line.decode("utf-8", "replace")

    def rest(self) -> str:
        """Everything until the other side closes the connection."""
        while self._more():
            if len(self._received) > _MOST_BYTES:
                raise ValueError(f"its answer has more than {_MOST_BYTES >> 20} MiB")
        return self._received.decode("utf-8", "replace")

    def _more(self) -> bool:
        self._connection.settimeout(self._left())
        data = self._connection.recv(1 << 16)
        self._received += data
        return bool(data)

    def _left(self) -> float:
        left = self._until - time.monotonic()
        if left <= 0:
            raise TimeoutError
        return left


def _listeners(port: int, ranks: Sequence[RasRank]) -> ListeningPort | Unavailable | None:
    """A rank's socket that listens on the port, where all that do are ranks'; None where no rank's does."""
    owners = {inode: rank.pid for rank in ranks for inode in sockets.socket_inodes(rank.pid) or ()}
    found = sockets.listening_inodes(ranks[0].pid, port)
    ours = [inode for inode in found if inode in owners]
    if not ours:
        return None
    if len(ours) < len(found):
        why = f"processes of another job listen on port {port} too, and either may answer"
        return _unavailable(why, "set another NCCL_RAS_ADDR for each job of a host")
    pid = owners[ours[0]]
    return next((each for each in sockets.listening_ports([pid]) if each.port == port), None)


def _host_of(listening: ListeningPort) -> str:
    try:
        address = ipaddress.ip_address(listening.address)
    except ValueError:
        return listening.address
    if address.is_unspecified:
        return "127.0.0.1" if address.version == 4 else "::1"
    return listening.address


def _port_of(address: str) -> int | None:
    """'localhost:28028' and '[::1]:28028' → 28028; None where there is no port in it."""
    digits = address.rpartition(":")[2]
    return int(digits) if digits.isdecimal() and len(digits) < 6 else None


def _with_ranks(status: NcclStatus, ranks: Sequence[RasRank], world_size: int | None) -> NcclStatus:
    """``status`` with the job's ranks of the members: by number in a communicator of the whole job, else by process."""
    by_pid = {procfs.namespace_pid(rank.pid, rank.pid): rank.rank for rank in ranks}
    everyone_here = world_size is not None and len(ranks) == world_size == len(by_pid)
    here = _own_addresses() if not everyone_here else frozenset()

    def known(member: CommunicatorMember, whole: bool) -> CommunicatorMember:
        if whole and member.number >= 0:
            return replace(member, rank=member.number)
        if member.pid is not None and (everyone_here or member.node in here):
            return replace(member, rank=by_pid.get(member.pid))
        return member

    def of(each: Communicator) -> Communicator:
        whole = world_size is not None and each.size == world_size
        return replace(
            each,
            silent=tuple(known(member, whole) for member in each.silent),
            counts=tuple(
                replace(count, members=tuple(known(member, whole) for member in count.members)) for count in each.counts
            ),
        )

    return replace(status, communicators=tuple(map(of, status.communicators)))


def _own_addresses() -> frozenset[str]:
    import psutil

    addresses = (each.address for group in psutil.net_if_addrs().values() for each in group)
    return frozenset(address.partition("%")[0] for address in addresses)


def _unavailable(why: str, remedy: str = "") -> Unavailable:
    return Unavailable("nccl", f"NCCL's RAS service: {why}", remedy)
