"""The program's own code: what its modules hold of functions, also in classes and behind decorators.

Nothing of the program's is executed for it: what an object refers to, the garbage collector tells.
"""

from __future__ import annotations

import functools
import sys
import types
from collections import deque
from gc import get_referents

# Judgement: a module of the user's has some hundred names.
MOST_VALUES = 20_000
DEEPEST = 6  # wrappers around a function

PLAIN = (dict, list, tuple, set, frozenset, deque, str, bytes, bytearray, int, float, complex, types.ModuleType)
HOLDING = {
    *(types.FunctionType, types.MethodType, types.CellType, staticmethod, classmethod, property),
    *(functools.partial, functools.cached_property, type(functools.lru_cache(print))),
}


def namespaces(is_users):
    """The globals of the program's modules. ``is_users``: says it of a file."""
    for name, module in list(sys.modules.items()):
        file = _file(module)
        if type(module) is types.ModuleType and (name == "__main__" or (file is not None and is_users(file))):
            yield module.__dict__


def code_in(names, is_users):
    """The code objects of the functions that a namespace holds; some may come twice, some are of libraries."""
    seen, left = set(), MOST_VALUES
    pending = [(value, DEEPEST) for value in list(names.values())]
    while pending and left:
        value, deep = pending.pop()
        left -= 1
        if id(value) in seen or not deep:
            continue
        seen.add(id(value))
        kind = type(value)
        if kind is types.FunctionType:
            yield value.__code__
        pending += [(each, deep - 1) for each in _inside(value, kind, is_users)]


def nested(code, code_type=types.CodeType, type=type):
    """The code of the functions, classes and comprehensions in it, not of those in these."""
    return [each for each in code.co_consts if type(each) is code_type]


def _file(module):
    file = module.__dict__.get("__file__") if type(module) is types.ModuleType else None
    return file if type(file) is str else None


def _inside(value, kind, is_users):
    if issubclass(kind, type):
        members = type.__dict__["__dict__"].__get__(value)
        name = members.get("__module__")
        file = _file(sys.modules.get(name)) if type(name) is str else None
        # Most classes in a program's namespace are a library's.
        return list(members.values()) if file is None or is_users(file) else ()
    if issubclass(kind, PLAIN) or value is None:
        return ()
    found = []
    for each in get_referents(value):
        if type(each) is dict:
            found += list(each.values()) if "__builtins__" not in each else ()  # its globals
        elif type(each) is tuple:
            found += each
        else:
            found.append(each)
    return [each for each in found if type(each) in HOLDING]
