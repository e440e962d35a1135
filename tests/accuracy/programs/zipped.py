"""The program is a zip file, as zipapp makes it.

python app.pyz runs the package inside, whose frames name paths inside of the archive. Rank 2 leaves a
function early, by a `return` in a `match`, before its collective.
"""

# /// hangdoc
# launch = "python"
# outcome = "hang"
# culprits = [2]
# file = "loop.py"
# lines = [11, 14]
# source = "constructed"
# ///

import os
import socket
import subprocess
import sys
import tempfile
import zipapp
from pathlib import Path

FIXED = os.environ.get("FIXED") == "1"
PROGRAM = """
import os
import torch
import torch.distributed as dist

def sample(kind):
    match kind:
        case "text":
            value = torch.ones(4)
        case "empty":
            return None
        case _:
            raise ValueError(kind)
    dist.all_reduce(value)
    return value

def main():
    dist.init_process_group("gloo")
    odd = dist.get_rank() == 2 and os.environ["FIXED"] != "1"
    for step in range(6):
        sample("empty" if odd and step == 2 else "text")
    dist.barrier()
    dist.destroy_process_group()
"""


def main():
    with tempfile.TemporaryDirectory() as folder:
        package = Path(folder) / "app"
        package.mkdir()
        (package / "loop.py").write_text(PROGRAM)
        zipapp.create_archive(package, Path(folder) / "app.pyz", main="loop:main")
        with socket.socket() as listener:
            listener.bind(("127.0.0.1", 0))
            port = str(listener.getsockname()[1])
        job = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port, "WORLD_SIZE": "3", "FIXED": str(int(FIXED))}
        command = [sys.executable, str(Path(folder) / "app.pyz")]
        ranks = [subprocess.Popen(command, env=os.environ | job | {"RANK": str(rank)}) for rank in range(3)]
        return max(rank.wait() for rank in ranks)


if __name__ == "__main__":
    sys.exit(main())
