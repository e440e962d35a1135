"""Run a command as two ranks: ``two_ranks.py COMMAND…``. Fails as the first that failed."""

import os
import socket
import subprocess
import sys

with socket.socket() as listener:
    listener.bind(("127.0.0.1", 0))
    port = str(listener.getsockname()[1])
shared = {**os.environ, "WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
ranks = [subprocess.Popen(sys.argv[1:], env={**shared, "RANK": str(rank)}) for rank in range(2)]
sys.exit(next((status for rank in ranks if (status := rank.wait())), 0))
