"""Looks like a rank to the injection, without torch, so that the code inside can be made to fail or to last.

argv: a folder for the false library, what happens inside ('answer'; 'fail': it knows no groups; 'last': the flight
recorder does; 'meet': the main thread joins the native thread meanwhile, with the global lock held). Ends when
<folder>/go exists.
"""

import ctypes
import mmap
import os
import pickle
import sys
import time
import types

FOLDER, MODE = sys.argv[1:3]


class Group:
    group_desc = "default_pg"

    def rank(self):
        return 0

    def size(self):
        return 1


def recorder(*_arguments):
    if MODE == "meet":
        begun.append(True)
        time.sleep(0.5)
    while MODE == "last" and not os.path.exists(os.path.join(FOLDER, "enough")):
        time.sleep(0.05)
    return pickle.dumps({"version": "2.10", "entries": []})


def false_torch():
    os.makedirs(os.path.join(FOLDER, "torch", "lib"))
    library = os.path.join(FOLDER, "torch", "lib", "libtorch_python.so")
    with open(library, "wb") as file:
        file.write(bytes(4096))
    torch, distributed = types.ModuleType("torch"), types.ModuleType("distributed_c10d")
    torch.__version__, torch.__file__ = "2.13.0", os.path.join(FOLDER, "torch", "__init__.py")
    torch._C = types.SimpleNamespace(
        _distributed_c10d=types.SimpleNamespace(ProcessGroup=Group, _dump_fr_trace=recorder)
    )
    group = Group()
    distributed._world = types.SimpleNamespace(
        pg_names={group: "0"}, pg_group_ranks={group: {0: 0}}, pg_map={group: ("gloo", None)}, default_pg=group
    )
    if MODE == "fail":
        del distributed._world
    sys.modules.update({"torch": torch, "torch.distributed.distributed_c10d": distributed})
    with open(library, "rb") as file:
        return mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ)


def native_thread():
    """A thread of C that waits for a semaphore; what ends and joins it."""
    library, semaphore = ctypes.CDLL(None), ctypes.create_string_buffer(64)
    library.sem_init(semaphore, 0, 0)
    start = ctypes.cast(library.sem_wait, ctypes.c_void_p)
    thread = ctypes.c_ulong()
    assert library.pthread_create(ctypes.byref(thread), None, start, semaphore) == 0

    def join():
        library.sem_post(semaphore)
        ctypes.PyDLL(None).pthread_join(thread, None)

    return join


def wait():
    while not os.path.exists(os.path.join(FOLDER, "go")):
        time.sleep(0.1 if MODE == "meet" else 0.5)
        if begun:
            join()
            begun.clear()


begun = []
kept, join = false_torch(), native_thread()
print("ready", flush=True)
wait()
print("well ended", flush=True)
