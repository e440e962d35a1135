"""Servers that work on one request at a time, as stacks and source show them."""

from __future__ import annotations

import pytest

from hangdoc.diagnosis.source.sources import Sources
from hangdoc.diagnosis.state.serving import asked_of, ended_by_requests, serves_in_turn
from hangdoc.model.process import Frame, Thread
from hangdoc.model.snapshot import SourceText

FILE, LIBRARY = "/job/serve.py", "/usr/lib/python3.11/socketserver.py"
SOURCES = Sources(
    (
        SourceText(
            FILE,
            "<module>",
            1,
            "class Handler(BaseHTTPRequestHandler):\n"
            "    def do_GET(self):\n"
            "        self.server.arrived.wait()\n"
            "    def do_POST(self):\n"
            "        self.server.arrived.set()\n"
            "def own(server):\n"
            "    while True:\n"
            "        conn, _ = server.accept()\n"
            "        answer(conn)\n",
        ),
    )
)
HANDLER = Frame(FILE, 3, "Handler.do_GET")
LOOP = (Frame(LIBRARY, 348, "BaseServer.process_request"), Frame(LIBRARY, 238, "BaseServer.serve_forever"))
IN_THREAD = (Frame(LIBRARY, 691, "ThreadingMixIn.process_request_thread"),)


@pytest.mark.parametrize(
    ("frames", "in_turn"),
    [
        ((HANDLER, *LOOP), True),
        ((HANDLER, *IN_THREAD), False),
        (LOOP, False),
        ((Frame(FILE, 9, "own"),), True),
        ((Frame(FILE, 8, "own"),), False),
    ],
)
def test_who_takes_the_next_request_when_this_one_is_answered(frames: tuple[Frame, ...], in_turn: bool) -> None:
    assert serves_in_turn(Thread(2, "server", "S", frames=frames), SOURCES) is in_turn


def test_what_a_further_request_would_end() -> None:
    server = Thread(2, "server", "S", frames=(HANDLER, *LOOP))
    assert asked_of(server) == "do_GET"
    assert ended_by_requests(server, "self.server.arrived", ("set",), SOURCES)
    assert not ended_by_requests(server, "self.server.other", ("set",), SOURCES)
