"""A TCPStore in a process of its own: torch's, not ours, and none of it in the sidecar.

The process has no descriptor of the job's or of ours but the pipe that is its stdin: when that closes, because the
sidecar closed it or was killed, it ends. It is no child of the sidecar's: a watch that was started as a rank (by srun)
has one child with torch, the rank itself, and whoever looks for ranks relies on that.
"""

from __future__ import annotations

import contextlib
import importlib.util
import os
import re
import selectors
import subprocess
import time

from hangdoc import interpreter
from hangdoc.capture.safe.open_files import user_of
from hangdoc.capture.safe.text import read_link, read_text
from hangdoc.capture.safe.tool import end

_START_SECONDS = 60.0
"""Importing torch takes two seconds, on a busy machine many times as long. Judgement."""
_KEPT = ("PATH", "HOME", "LANG", "LD_LIBRARY_PATH", "PYTHONPATH", "TMPDIR", "VIRTUAL_ENV")
_LIBRARY = re.compile(r"\s(/\S.*)/torch/lib/libtorch_cpu\.so", re.MULTILINE)
_MOST_MAPS = 4 << 20
_MOST_HELD = 384 << 20
"""Bytes that the store may hold: eight whole snapshots are 256 MiB, and whoever reaches its port may write there. A
helper that is filled ends, and the meeting with it, before the job lacks the memory. Judgement."""

# The job goes first, and the helper is the first to be killed where memory runs out; what the store holds counts from
# what the process has without it. Before torch 2.4 the store takes no libuv, and not every build has it.
_CODE = """
import os, resource, socket, sys
if os.fork():
    os._exit(0)
try:
    os.nice(5)
    open("/proc/self/oom_score_adj", "w").write("1000")
except OSError:
    pass
import torch.distributed as dist
address, port = sys.argv[1], int(sys.argv[2])
listener = socket.socket(socket.AF_INET6 if ":" in address else socket.AF_INET)
listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
listener.bind((address, port))
listener.listen(4096)
port = listener.getsockname()[1]
store = dist.TCPStore(address, port, is_master=True, wait_for_workers=False, master_listen_fd=listener.detach())
try:
    (used,) = [int(line.split()[1]) << 10 for line in open("/proc/self/status") if line.startswith("VmData:")]
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_DATA, (used + int(sys.argv[3]),) * 2)
except (OSError, ValueError):
    pass
print(port, os.getpid(), flush=True)
sys.stdin.read()
os._exit(0)
"""


class StoreHelper:
    """A store that listens on ``address`` and ``port``, as long as this object is not closed and our process lives."""

    def __init__(self, address: str, port: int, witness: int) -> None:
        """``port`` 0: any that is free. ``witness``: a rank's pid, whose torch is used where we have none.

        Takes some seconds. Raises ``OSError``.
        """
        python, path = _torch(witness)
        environment = {name: os.environ[name] for name in _KEPT if name in os.environ}
        environment |= {"TORCH_DEVICE_BACKEND_AUTOLOAD": "0", "CUDA_VISIBLE_DEVICES": "", "OMP_NUM_THREADS": "1"}
        if path:
            environment["PYTHONPATH"] = path
        self.address = address
        self._process = subprocess.Popen(
            interpreter.command(_CODE, address, str(port), str(_MOST_HELD), python=python),
            env=interpreter.environment(environment),
            cwd="/",
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            start_new_session=True,  # a ctrl-C is meant for the job
        )
        try:
            self.port, self.pid = self._hear()
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """End the process, by closing its stdin."""
        end(self._process)

    def _hear(self) -> tuple[int, int]:
        """(its port, its pid), which it prints once it listens. Raises ``OSError``."""
        output = self._process.stdout
        assert output is not None
        until = time.monotonic() + _START_SECONDS
        said = b""
        with selectors.DefaultSelector() as ready:
            ready.register(output, selectors.EVENT_READ)
            while not said.endswith(b"\n"):
                if not ready.select(max(0.0, until - time.monotonic())):
                    raise TimeoutError("the store's helper process does not start")
                piece = os.read(output.fileno(), 64)
                if not piece or len(said) > 64:
                    raise OSError("the store's helper process failed to start")
                said += piece
        port, _, pid = said.decode("ascii", "replace").strip().partition(" ")
        if not (port.isdigit() and pid.isdigit()):
            raise OSError("the store's helper process failed to start")
        return int(port), int(pid)


def _torch(witness: int) -> tuple[str | None, str]:
    """(the interpreter that has torch, None for our own; the folder that torch is in, '' for our own).

    Nothing is run that another user has started: root may watch `sudo -u somebody torchrun …`.
    """
    with contextlib.suppress(ImportError, ValueError):
        if importlib.util.find_spec("torch") is not None:
            return None, ""
    owner = user_of(witness)
    if owner is None or owner.uid != os.geteuid():
        raise OSError("no torch for the store's helper process, and the ranks' is another user's")
    maps = _LIBRARY.search(read_text(f"/proc/{witness}/maps", _MOST_MAPS) or "")
    python = read_link(f"/proc/{witness}/exe")
    if maps is None or not python:
        raise OSError("no torch for the store's helper process")
    return python, maps[1]
