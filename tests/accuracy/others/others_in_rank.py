"""What the other tools need from a rank that knows nothing of them. Silent; loaded at the end of `import torch`.

OTHERS_DUMPS=<folder>: once <folder>/now exists, every rank that has a process group writes what its flight recorder
holds, as it is to <folder>/raw/rank_N, and with the members of every group to <folder>/groups/rank_N.
OTHERS_TIMEOUT=<seconds>: the time-out of all process groups, for a run with TORCH_DISTRIBUTED_DEBUG=DETAIL.
"""

import contextlib
import datetime
import functools
import gc
import inspect
import os
import pickle
import sys
import threading
import time


def _autoload():
    """The entry point: replaces init_process_group wherever it is known by now."""
    try:
        from torch._C import _distributed_c10d as c10d
        from torch.distributed import constants, distributed_c10d

        seconds = os.environ.get("OTHERS_TIMEOUT")
        timeout = datetime.timedelta(seconds=float(seconds)) if seconds else None
        if timeout is not None:  # of new_group, and of libraries that pass the default on
            constants.default_pg_timeout = distributed_c10d.default_pg_timeout = timeout
            # Under DETAIL with gloo, torch 2.13 crashes here for every DDP model; it only collects statistics.
            c10d.Logger.set_construction_data_and_log = lambda *_: None
        original = distributed_c10d.init_process_group
        ours = _wrapped(original, timeout, os.environ.get("OTHERS_DUMPS"))
        for module in list(sys.modules.values()):
            if getattr(module, "__dict__", {}).get("init_process_group") is original:
                module.init_process_group = ours
    except Exception:  # the job goes on without us
        return


def _wrapped(original, timeout, folder):
    signature = inspect.signature(original)

    @functools.wraps(original)
    def init_process_group(*args, **kwargs):
        call = signature.bind(*args, **kwargs)
        if timeout is not None:
            call.arguments["timeout"] = timeout
        original(*call.args, **call.kwargs)
        if folder:
            open(os.path.join(folder, f"joined-{os.getpid()}"), "w").close()
            threading.Thread(target=_dump_when_told, args=(folder,), daemon=True).start()

    return init_process_group


def _dump_when_told(folder):
    while not os.path.exists(os.path.join(folder, "now")):
        time.sleep(0.25)
    gc.disable()  # a finalizer of the job, run in this thread, might wait for the other ranks
    with contextlib.suppress(Exception):  # a rank without a process group by now has nothing to tell
        _dump(folder)


def _dump(folder):
    from torch._C import _distributed_c10d
    from torch.distributed import distributed_c10d

    name = f"rank_{distributed_c10d.get_rank()}"
    raw = _distributed_c10d._dump_fr_trace(includeCollectives=True, includeStackTraces=True, onlyActive=False)
    _write(os.path.join(folder, "raw", name), raw)
    dump = pickle.loads(raw)
    dump.setdefault("entries", [])
    world = distributed_c10d._world
    dump["pg_config"] = {
        known: {"name": known, "desc": group.group_desc, "ranks": str(sorted(world.pg_group_ranks[group]))}
        for group, known in world.pg_names.items()
    }
    _write(os.path.join(folder, "groups", name), pickle.dumps(dump))


def _write(path, data):
    """Under another name first, outside of the folder: whoever waits for the file finds it whole."""
    unfinished = f"{os.path.dirname(path)}-{os.path.basename(path)}"
    with open(unfinished, "wb") as file:
        file.write(data)
    os.replace(unfinished, path)
