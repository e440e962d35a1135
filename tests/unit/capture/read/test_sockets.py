from __future__ import annotations

import pytest

from hangdoc.capture.read.sockets import Sockets, name_sockets, parse_table
from hangdoc.model.network import Connection, ListeningPort
from hangdoc.model.process import OpenFile

HEADER = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n"
LISTEN = "   0: 0100007F:1F90 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 101 1 0 100 0\n"
CONNECTED = "   1: 0100007F:1F91 0200000A:0050 01 00000010:00000060 01:00000014 00000007     0        0 102 2 0 20 4\n"
MAPPED = (
    "   2: 0000000000000000FFFF00000100007F:1F92 00000000000000000000000000000000:0000 0A"
    " 00000000:00000000 00:00000000 00000000     0        0 103 1 0 100 0\n"
)
SIX = (
    "   3: 000080FE00000000FF005450B6AD1DFE:1F93 00000000000000000000000001000000:0050 02"
    " 00000000:00000000 00:00000000 00000003     0        0 104 1 0 100 0\n"
)


def test_table() -> None:
    found = dict(parse_table(HEADER + LISTEN + CONNECTED, {101: 7, 102: 8}))
    assert found == {
        101: ListeningPort(7, "127.0.0.1", 8080),
        102: Connection(8, "127.0.0.1", 8081, "10.0.0.2", 80, "ESTABLISHED", 0x60, 0x10, 7),
    }


def test_only_sockets_of_the_job() -> None:
    assert dict(parse_table(HEADER + LISTEN + CONNECTED, {101: 7})).keys() == {101}


def test_ipv6() -> None:
    found = dict(parse_table(HEADER + MAPPED + SIX, {103: 7, 104: 7}))
    assert found[103] == ListeningPort(7, "127.0.0.1", 8082)
    assert found[104] == Connection(7, "fe80::5054:ff:fe1d:adb6", 8083, "::1", 80, "SYN_SENT", 0, 0, 3)


@pytest.mark.parametrize(
    "line", ["", "x", LISTEN.replace("0A", "zz"), LISTEN.replace("0100007F", "01"), LISTEN.replace("1F90", "")]
)
def test_rubbish_is_skipped(line: str) -> None:
    assert dict(parse_table(HEADER + line + "\n" + CONNECTED, {101: 7, 102: 8})).keys() == {102}


def test_sockets_get_names_and_the_process_beyond() -> None:
    here = Connection(7, "10.0.0.1", 5, "10.0.0.2", 6, "ESTABLISHED")
    there = Connection(8, "10.0.0.2", 6, "10.0.0.1", 5, "ESTABLISHED")
    port = ListeningPort(7, "0.0.0.0", 9)
    known = Sockets((port,), (here, there), {1: here, 2: port})
    files = [OpenFile(3, f"socket:[{inode}]", operation="read") for inode in (1, 2, 3)]
    named = name_sockets([*files, OpenFile(4, "pipe:[1]")], known)
    assert [file.target for file in named] == [
        "socket:tcp 10.0.0.1:5 to 10.0.0.2:6 (ESTABLISHED)",
        "socket:tcp listening on 0.0.0.0:9",
        "socket:[3]",
        "pipe:[1]",
    ]
    assert [file.peers for file in named] == [(8,), (), (), ()]


def test_a_connection_that_nobody_has_accepted() -> None:
    here = Connection(7, "127.0.0.1", 5, "127.0.0.1", 9, "ESTABLISHED")
    for addresses, peers in ((("0.0.0.0",), (8,)), (("10.0.0.1",), ()), (("127.0.0.1", "0.0.0.0"), ())):
        ports = tuple(ListeningPort(8 + at, address, 9) for at, address in enumerate(addresses))
        (named,) = name_sockets([OpenFile(3, "socket:[1]", operation="read")], Sockets(ports, (here,), {1: here}))
        assert named.peers == peers
        assert ("not accepted" in named.target) is bool(peers)
