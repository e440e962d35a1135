"""What the job's objects have counted and collected: counters, flags, and how many items their containers have.

The statement that counts a skipped batch, or notes what was dropped, is on no stack any more; what it left behind tells
on which ranks it ran. Runs no user code, and looks at exact builtin types alone.
"""

from __future__ import annotations

import collections
import os
import sys
import types

# Bounds of one answer. Judgement.
MOST_TRACES = 600
MOST_OBJECTS = 200
MOST_OF_ONE = 48  # traces of one object
MOST_ITEMS = 16  # of a list or dictionary of objects
MOST_KEYS = 24  # of a dictionary of numbers
STEPS = 3  # attributes and items beyond a local
LONGEST_NAME = 100
LARGEST = 1 << 62
OPTIMIZED = 1  # co_flags: a function, whose locals are no namespace

LISTS = (list, tuple, collections.deque)
DICTIONARIES = (dict, collections.Counter, collections.defaultdict, collections.OrderedDict)
SIZED = (*LISTS, *DICTIONARIES, set)


def traces(stacks, locals_of, names_of, library_roots):
    """[file, name of the class or function, owner, name, value] of each trace that user frames can see.

    ``stacks``: frames, innermost first; ``locals_of(frame, code)`` and ``names_of(object)`` read without user code.
    Of several ways to an object, the shortest from the outermost frame is taken: ranks have that one in common.
    """
    found = _Found(names_of, tuple(root.rstrip("/") + "/" for root in library_roots))
    for frames in stacks:
        for frame in reversed(list(frames)):
            code = frame.f_code
            if code.co_filename.startswith((*found.roots, "<")):
                continue
            found.of_namespace(frame.f_globals)
            if code.co_flags & OPTIMIZED:
                mine = locals_of(frame, code)
                found.add_sizes(code.co_filename, code.co_name, "", mine, _strings(code), 0)
                found.walk(mine)
            if len(found.rows) >= MOST_TRACES:
                return found.rows[:MOST_TRACES]
    return found.rows


class _Found:
    def __init__(self, names_of, roots):
        self.names_of = names_of
        self.roots = roots
        self.rows = []
        self.seen = set()
        self.classes = {}  # id of a class → (its file, the strings of its code), or None for a library's

    def of_namespace(self, names):
        """The traces of a module, and of the objects in it."""
        file = names.get("__file__") if type(names) is dict else None
        if type(file) is not str or id(names) in self.seen:
            return
        self.seen.add(id(names))
        mine = {name: value for name, value in list(names.items()) if type(name) is str and name[:2] != "__"}
        strings = {
            part for each in mine.values() if type(each) is types.FunctionType for part in _strings(each.__code__)
        }
        self.add_numbers(file, "<module>", "", mine)
        self.add_sizes(file, "<module>", "", mine, strings, 0)
        self.walk(mine)

    def walk(self, names):
        """The traces of the objects that these names lead to, the nearest first."""
        queue = collections.deque((name, value, STEPS) for name, value in names.items())
        while queue and len(self.seen) < MOST_OBJECTS and len(self.rows) < MOST_TRACES:
            path, value, steps = queue.popleft()
            if type(value) is types.MethodType:
                value = value.__self__
            if type(value) in (*LISTS, *DICTIONARIES):
                if steps:
                    queue += [(f"{path}[]", each, steps - 1) for each in _items(value)]
                continue
            kind = self.class_of(value)
            if kind is None or id(value) in self.seen:
                continue
            self.seen.add(id(value))
            mine = self.names_of(value)
            mine = {name: each for name, each in list(mine.items()) if type(name) is str}
            modules = mine.get("_modules")
            if type(modules) is dict:
                mine.update((name, each) for name, each in list(modules.items()) if type(name) is str)
            file, strings = kind
            name = type.__dict__["__name__"].__get__(type(value))
            count = len(self.rows)
            self.add_numbers(file, name, path, mine)
            self.add_sizes(file, name, path, mine, strings, count)
            if steps:
                queue += [(f"{path}.{name}", each, steps - 1) for name, each in mine.items()]

    def class_of(self, value):
        """(file, strings of the code) of a user's class; None for any other."""
        kind = type(value)
        at = id(kind)  # a metaclass may have its own hash
        if at not in self.classes:
            names = type.__dict__["__dict__"].__get__(kind)
            module = sys.modules.get(_text(names.get("__module__")))
            file = module.__dict__.get("__file__") if type(module) is types.ModuleType else None
            mine = type(file) is str and not os.path.abspath(file).startswith(self.roots)
            codes = [each.__code__ for each in names.values() if type(each) is types.FunctionType] if mine else []
            self.classes[at] = (os.path.abspath(file), {s for code in codes for s in _strings(code)}) if mine else None
        return self.classes[at]

    def add_numbers(self, file, kind, owner, names):
        """Counters and flags."""
        count = len(self.rows)
        for name, value in names.items():
            if (shown := _plain(value)) is not None and len(self.rows) - count < MOST_OF_ONE:
                self.rows.append([file, kind, owner[:LONGEST_NAME], name[:LONGEST_NAME], shown])

    def add_sizes(self, file, kind, owner, names, strings, count):
        """How many items containers have, and the numbers in a dictionary under keys that the code spells out."""
        count = count or len(self.rows)
        for name, value in names.items():
            if type(value) not in SIZED or len(self.rows) - count >= MOST_OF_ONE:
                continue
            shown = name[:LONGEST_NAME]
            self.rows.append([file, kind, owner[:LONGEST_NAME], f"len({shown})", repr(len(value))])
            known = sorted(strings) if type(value) in DICTIONARIES else []
            for key, each in _pairs(value) if known else ():
                if type(key) is str and key in strings and type(each) in (int, bool):
                    # The key's place among the code's strings: the text itself stays in the job.
                    at = f"{shown}[{known.index(key)}]"
                    self.rows.append([file, kind, owner[:LONGEST_NAME], at, repr(each)])


def _text(value):
    return value if type(value) is str else ""


def _plain(value):
    """A number or flag as text; None for anything else."""
    if value is None or type(value) is bool:
        return repr(value)
    if type(value) is int:
        return repr(value) if -LARGEST < value < LARGEST else None
    return "'…'" if type(value) is str else None


def _pairs(value):
    try:
        pairs = list(dict.items(value))
    except RuntimeError:  # a thread of the job added to it meanwhile
        return []
    return pairs[:MOST_KEYS]


def _items(value):
    """The first items of a list, or values of a dictionary."""
    try:
        return (
            [each for _, each in _pairs(value)][:MOST_ITEMS]
            if type(value) in DICTIONARIES
            else list(value)[:MOST_ITEMS]
        )
    except RuntimeError:
        return []


def _strings(code, deep=3):
    """The strings in a function's code, and in the functions that it holds."""
    found = {each for each in code.co_consts if type(each) is str and len(each) <= LONGEST_NAME}
    for each in code.co_consts if deep else ():
        if type(each) is types.CodeType:
            found |= _strings(each, deep - 1)
    return found
