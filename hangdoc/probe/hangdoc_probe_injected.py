"""What ``hangdoc attach --inject`` runs inside a rank that has no probe: it gives one answer of the probe's and ends.

``capture/inject/injection.py`` runs it on a daemon thread of its own, which neither ``threading`` nor its tracers and
profilers know. It replaces nothing, starts nothing and leaves no module.
"""

import gc
import os
import sys
import types

MODULES = (
    "hangdoc_probe",
    "hangdoc_probe_tasks",
    "hangdoc_probe_traces",
    "hangdoc_probe_typed",
    "hangdoc_probe_details",
    "hangdoc_probe_recorders",
    "hangdoc_probe_serve",
)
ANSWER, FAILURE = "answer", "failure"


def answer(folder, out, home, variables):
    """Write ``out``/answer, or ``out``/failure with the reason.

    The probe's files are read from ``folder``, which has copies of those in ``home``. ``variables``: the names of the
    environment variables that the answer may have, and beginnings of such names.
    """
    collecting = gc.isenabled()
    gc.disable()  # a finalizer of the job's could block here for ever
    before = {name: sys.modules.get(name) for name in MODULES}
    try:
        loaded = [_load(name, folder, home) for name in MODULES]
        _write(out, ANSWER, _answer(*loaded, variables))
    except BaseException as error:
        _write(out, FAILURE, f"{type(error).__name__}: {error}"[:300].encode("utf-8", "replace"))
    finally:
        for name, module in before.items():
            ours = sys.modules.pop(name, None)
            if module is not None:
                sys.modules[name] = module
            if ours is not None and ours is not module:
                ours.__dict__.clear()  # its functions and their globals hold each other
        if collecting:
            gc.enable()


def _load(name, folder, home):
    with open(os.path.join(folder, f"{name}.py"), "rb") as file:
        source = file.read()
    module = sys.modules[name] = types.ModuleType(name)
    module.__file__ = os.path.join(home, f"{name}.py")
    exec(compile(source, module.__file__, "exec"), module.__dict__)  # noqa: S102 - the probe's own files
    return module


def _answer(probe, _tasks, _traces, _typed, _details, _recorders, serve, variables):
    state = probe.State("")
    state.pid = os.getpid()
    state.rank, state.world_size = _number("RANK"), _number("WORLD_SIZE")
    world = sys.modules["torch.distributed.distributed_c10d"]._world
    # The probe would have seen them made; their backends tell which recorders there are.
    for group, name in list(world.pg_names.items()):
        state.groups[name] = [], "", str(world.pg_map.get(group, ("",))[0]), None
    header, parts = serve._details(state)
    names, beginnings = set(variables), tuple(name for name in variables if name.endswith("_"))
    header["environment"] = {
        name: value for name, value in os.environ.items() if name in names or name.startswith(beginnings)
    }
    return serve._framed(header, parts)


def _number(variable):
    text = os.environ.get(variable, "")
    return int(text) if text.isdigit() and len(text) < 10 else None


def _write(folder, name, data):
    path = os.path.join(folder, name)
    with open(os.open(path + ".new", os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
        file.write(data)
    os.rename(path + ".new", path)
