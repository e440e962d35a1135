"""c10d's flight recorders: which ones this process has, and what they say."""

from __future__ import annotations

import contextlib
import sys
import types
from _thread import get_ident

MOST_HOOKED = 5  # of an answer; judgement: a job has one backend for each kind of device
OWN = ("nccl", "xccl")  # backends whose recorder has dump functions of its own
# Backends of which no hook records anything (torch 2.15.0: _FR_SELF_RECORDING_BACKENDS, and what "nccl" may mean).
NOT_HOOKED = {"", "fake", "gloo", "nccl", "nccl-legacy", "undefined", "xccl"}


def c10d():
    """torch's module of it, which the job has imported."""
    import torch

    return torch._C._distributed_c10d


def recorded(state, function, *arguments):
    """The dumps of c10d's recorders, one part each: the common one (gloo's), nccl's or xccl's own where it is in use,
    and that of each backend whose calls c10d's hooks record.

    ``function``: its name, with %s for the word in which they differ (torch 2.8 to 2.15; nccl's and xccl's were read,
    not run). Until torch 2.14 hooked backends write into the common recorder; since 2.15 each has one of its own, which
    is asked for by the backend's name and made where there is none: so only backends in use are asked for.
    """
    parts = []
    used = [backend for _, _, backend, _ in list(state.groups.values())]
    for word in ("fr", *(own for own in OWN if any(own in backend for backend in used))):
        try:
            parts.append(getattr(c10d(), function % word)(*arguments))
        except Exception:  # a torch without this recorder
            continue
    for name in _hooked(state):
        try:
            parts.append(getattr(c10d(), function % "fr")(*arguments, backend=name))
        except TypeError:
            state.backends = None  # this torch has one recorder for all
        except Exception:
            continue
    return parts


def _hooked(state):
    """The names of backends that may have a recorder of their own."""
    if state.backends is None:
        return []
    for group, (backend, _) in list(sys.modules["torch.distributed.distributed_c10d"]._world.pg_map.items()):
        if backend not in state.backends:  # remembered: a rank that ends has destroyed its groups
            state.backends[backend] = _names(group, backend)
    names = {name for found in list(state.backends.values()) for name in found}
    return sorted(names - NOT_HOOKED)[:MOST_HOOKED]


def _names(group, backend):
    """What the backends of a group are called: as they were asked for ('cpu:gloo,cuda:nccl'), and as they call
    themselves, which is what recorders go by ('nccl2')."""
    found = {part.rpartition(":")[2] for part in str(backend).split(",")}
    try:
        kind = c10d().ProcessGroup  # not through a subclass of the user's
        for device in kind._device_types.__get__(group):
            made = kind._get_backend(group, device)
            if not _names_itself_in_python(type(made)):
                found.add(c10d().Backend.name(made))
    except Exception:  # a group of an unusual make
        pass
    return found


def _names_itself_in_python(kind):
    """True if asking such a backend for its name would run code of the user's."""
    for base in type.__dict__["__mro__"].__get__(kind):
        if type(type.__dict__["__dict__"].__get__(base).get("getBackendName")) is types.FunctionType:
            return True
    return False


class _NoInductor:
    """In the place of ``torch._inductor`` while c10d symbolizes its stacks.

    Its symbolizer calls ``hasattr(torch, "_inductor")``, which imports 800 modules (one second) if the job has
    never used the compiler (torch 2.13.0). Other threads get the real module meanwhile.
    """

    def __init__(self):
        object.__setattr__(self, "asker", get_ident())

    def __getattr__(self, name):
        if get_ident() == object.__getattribute__(self, "asker"):
            raise AttributeError(name)
        import importlib

        return getattr(importlib.import_module("torch._inductor"), name)


@contextlib.contextmanager
def no_inductor():
    """Keep c10d's symbolizer from importing the compiler."""
    names = sys.modules["torch"].__dict__
    stand_in = None
    if "_inductor" not in names:
        stand_in = names["_inductor"] = _NoInductor()
    try:
        yield
    finally:
        if stand_in is not None and names.get("_inductor") is stand_in:
            del names["_inductor"]
