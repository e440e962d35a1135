"""A real Jupyter server under watch, whose kernel forks ranks that hang; and the page of a diagnosis below a cell."""

from __future__ import annotations

import asyncio
import importlib.util
import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any
from urllib.request import Request, urlopen

import pytest
from conftest import MARK

pytestmark = pytest.mark.timeout(300)

SAVED = Path(__file__).parents[1] / "data" / "HD101"
CELLS = [
    "import os, torch, torch.distributed as dist, torch.multiprocessing as mp",
    """\
def evaluate(rank, step):
    scores = torch.ones(4)
    if rank == 1 and step == 3:
        return
    dist.all_reduce(scores)

def train(rank, port):
    os.environ.update(MASTER_ADDR='127.0.0.1', MASTER_PORT=port, RANK=str(rank), WORLD_SIZE='3')
    dist.init_process_group('gloo')
    for step in range(6):
        evaluate(rank, step)
    dist.barrier()
""",
    "mp.start_processes(train, args=(PORT,), nprocs=3, start_method='fork')",
]


def needs(*names: str) -> None:
    for name in names:
        if importlib.util.find_spec(name) is None:
            pytest.skip(f"no {name}: pip install {name}")


def port_of_the_job() -> str:
    with socket.socket() as probed:
        probed.bind(("127.0.0.1", 0))
        return str(probed.getsockname()[1])


async def run_cells(port: int, cells: list[str]) -> None:
    """Start a kernel of the server's and have it run the cells; the last one is not waited for."""
    from tornado.httpclient import HTTPRequest
    from tornado.websocket import websocket_connect

    allowed = {"Authorization": "token a-test"}
    url = f"http://127.0.0.1:{port}/api/kernels"
    request = Request(url, b'{"name": "python3"}', {"Content-Type": "application/json"} | allowed)
    with urlopen(request, timeout=60) as answer:
        kernel = json.load(answer)["id"]
    channels = f"ws://127.0.0.1:{port}/api/kernels/{kernel}/channels?session_id=a-test"
    channel = await websocket_connect(HTTPRequest(channels, headers=allowed))
    for number, code in enumerate(cells):
        content = {"code": code, "silent": False, "store_history": True, "user_expressions": {}, "allow_stdin": False}
        header = {"msg_id": f"cell-{number}", "msg_type": "execute_request", "session": "a-test", "username": "a"}
        header |= {"version": "5.3", "date": "2026-01-01T00:00:00Z"}
        message = {"header": header, "parent_header": {}, "metadata": {}, "content": content, "channel": "shell"}
        await channel.write_message(json.dumps(message))
        while number < len(cells) - 1:
            said: Any = json.loads(await asyncio.wait_for(channel.read_message(), 60) or "{}")
            if said.get("msg_type") == "execute_reply":
                assert said["content"]["status"] == "ok", said["content"]
                break


def await_server(port: int, process: subprocess.Popen[bytes], log: Path) -> None:
    for _ in range(240):
        try:
            urlopen(f"http://127.0.0.1:{port}/api", timeout=5).close()
            return
        except OSError:
            assert process.poll() is None, log.read_text()
            time.sleep(0.25)
    raise AssertionError(log.read_text())


def test_a_cell_that_hangs(tmp_path: Path, mark: str, free_port: int) -> None:
    needs("jupyter_server", "ipykernel", "tornado")
    port, report = free_port, tmp_path / "report.json"
    line = [sys.executable, "-m", "hangdoc", "watch", "--stall-after", "5", "--report", str(report)]
    line += ["--run-dir", str(tmp_path / "run"), "--", sys.executable, "-m", "jupyter_server", "--no-browser"]
    line += ["--allow-root", f"--port={port}", "--ServerApp.port_retries=0", "--IdentityProvider.token=a-test"]
    line += [f"--ServerApp.root_dir={tmp_path}"]
    environment = {name: value for name, value in os.environ.items() if not name.startswith("HANGDOC_")}
    environment |= {MARK: mark, "OMP_NUM_THREADS": "1", "HOME": str(tmp_path), "IPYTHONDIR": str(tmp_path / "ipython")}
    log = tmp_path / "log"
    with log.open("wb") as said:
        server = subprocess.Popen(line, env=environment, cwd=tmp_path, stdout=said, stderr=said, start_new_session=True)
    await_server(port, server, log)
    cells = [*CELLS[:2], CELLS[2].replace("PORT", repr(port_of_the_job()))]
    asyncio.run(run_cells(port, cells))
    deadline = time.monotonic() + 100
    while not report.exists() and time.monotonic() < deadline:
        time.sleep(0.5)
    assert report.exists(), log.read_text()
    found = json.loads(report.read_text())
    assert (found["outcome"], found["culprits"], found["cause"]["code"]) == ("hang", [1], "HD101"), log.read_text()
    assert found["divergence"]["branch"]["condition"] == "if rank == 1 and step == 3:"
    assert found["divergence"]["branch"]["line"] == 3
    assert "In[2]:" in found["verdict"]
    assert "In[2] evaluate()" in log.read_text()  # the cell's code
    server.send_signal(signal.SIGTERM)
    server.wait(60)


def test_the_page_below_a_cell(tmp_path: Path) -> None:
    needs("nbclient", "ipykernel")
    import nbformat
    from nbclient import NotebookClient

    saved = min(SAVED.glob("*.hangdoc"))
    book = nbformat.v4.new_notebook()
    code = f"import hangdoc\nhangdoc.diagnose({str(saved)!r})"
    book.cells = [nbformat.v4.new_code_cell(code)]
    NotebookClient(book, timeout=100, kernel_name="python3").execute(cwd=str(tmp_path))
    (shown,) = book.cells[0].outputs
    frame = shown["data"]["text/html"]
    assert re.match(r"\s*<iframe[^>]* sandbox", frame)
    assert "srcdoc=" in frame
