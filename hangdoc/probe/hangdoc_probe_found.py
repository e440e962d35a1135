"""How the recorder of branches comes to know the program's code, without asking for an event of all code.

Any event that is asked for of all code costs it the interpreter's own counters, and in CPython 3.12 its
superinstructions. So what there is already is looked up once: on the stacks, and in the modules. Of what comes later,
events of a few functions tell: of those by which Python runs the body of a module, a notebook a cell, and of the
program's own that call ``exec``, what they call it with; of those that make functions from a pickle, or code anew, what
they return. A text that the program executes is not seen: it is compiled inside of ``exec``.

Each code object, and each one that is in it, is then asked for its first call alone.
"""

from __future__ import annotations

import sys
import types

from hangdoc_probe_program import code_in, namespaces, nested

# Judgement: a program has some hundred code objects; one with a library that is not installed as such has all of these.
MOST_CODES, MOST_MADE = 40_000, 4000  # those that the program executes, or that are made of other code
MOST_TYPED_IN = 100  # those without a file: exec makes new code each time
MOST_BYTES = 1 << 23  # of bytecode, of which is kept what was there before

# Module → the functions that call others with code to run.
RUNNING = {
    "IPython.core.interactiveshell": ("InteractiveShell.run_code",),
    "_pytest.assertion.rewrite": ("AssertionRewritingHook.exec_module",),
    "code": ("InteractiveInterpreter.runcode",),
    "importlib._bootstrap": ("_call_with_frames_removed",),
    "runpy": ("_run_code",),
}
# Module → the functions that return functions or code that were not there before.
MAKING = {
    "cloudpickle.cloudpickle": ("_make_function",),
    "dill._dill": ("_create_function",),
    "joblib.externals.cloudpickle.cloudpickle": ("_make_function",),
    "pyspark.cloudpickle.cloudpickle": ("_make_function",),
    "ray.cloudpickle.cloudpickle": ("_make_function",),
    "torch._dynamo.bytecode_transformation": ("transform_code_object",),
}

# The user's files are those outside the libraries. Names in brackets are no files; what is typed in has these.
TYPED_IN = ("<string>", "<stdin>", "<ipython-input")
# Modules of libraries whose loops call the user's code, by what their paths have in them.
LOOPS = (
    "/colossalai/pipeline/schedule/",
    "/composer/trainer/trainer.py",
    "/deepspeed/runtime/engine.py",
    "/deepspeed/runtime/pipe/engine.py",
    "/deepspeed/runtime/pipe/schedule.py",
    "/ignite/engine/engine.py",
    "/lightning/pytorch/loops/",
    "/lightning/pytorch/trainer/",
    "/megatron/core/pipeline_parallel/schedules.py",
    "/megatron/training/training.py",
    "/pytorch_lightning/loops/",
    "/pytorch_lightning/trainer/",
    "/torch/distributed/pipelining/schedules.py",
    "/torchtnt/framework/",
    "/transformers/trainer.py",
    "/trl/trainer/",
)


def look_around(chooses, listen, ask):
    """Make known what there is of the program now, and have the functions of those tables tell of what comes.

    Gives the code on the stacks, which has begun.
    """
    running, spaces = [], {}
    for frame in list(sys._current_frames().values()):
        while frame is not None:
            listen(frame.f_code)
            running.append(frame.f_code)
            if chooses(frame.f_code.co_filename):
                spaces[id(frame.f_globals)] = frame.f_globals
            frame = frame.f_back  # noqa: PLW2901 - outwards
    spaces.update((id(names), names) for names in namespaces(chooses))
    for names in spaces.values():
        for code in code_in(names, chooses):
            listen(code)
    for table in (RUNNING, MAKING):
        for name, paths in table.items():
            for path in paths if name in sys.modules else ():
                function = _attribute(sys.modules[name], path)
                if type(function) is types.FunctionType:
                    ask(function.__code__, table is MAKING)
    return running


def _attribute(holder, path):
    """Of a module, or of a class in it; None if there is none."""
    for name in path.split("."):
        if issubclass(type(holder), type):
            holder = type.__dict__["__dict__"].__get__(holder).get(name)
        else:
            holder = holder.__dict__.get(name) if type(holder) is types.ModuleType else None
    return holder


def chooser(roots):
    """A function that says of a file whether its code is recorded. ``roots``: the folders of the libraries."""
    known = {}

    def chooses(file, known=known, roots=roots, loops=LOOPS, typed_in=TYPED_IN, str=str, type=type):
        if type(file) is not str:
            return False
        if file[:1] == "<":
            return file.startswith(typed_in)
        found = known.get(file)
        if found is None:
            found = known[file] = not file.startswith(roots) or any(part in file for part in loops)
        return found

    return chooses


def callbacks(state, tool, name, chooses):
    """(make code known, ask a function what it runs or returns, of a call, of what is returned)"""
    monitoring = sys.monitoring
    left, few = ([most, MOST_TYPED_IN, MOST_BYTES] for most in (MOST_CODES, MOST_MADE))
    functions = {
        f"/{module.replace('.', '/')}.py": (paths, table is MAKING)
        for table in (RUNNING, MAKING)
        for module, paths in table.items()
    }

    def ask(
        code,
        makes,
        asked=state.asked,
        tool=tool,
        calls=monitoring.events.CALL,
        returns=monitoring.events.PY_RETURN,
        set_local_events=monitoring.set_local_events,
        id=id,
    ):
        asked[id(code)] = code
        set_local_events(tool, code, returns if makes else calls)

    def listen(
        code,
        left=left,
        told=True,
        codes=state.codes,
        before=state.before,
        chooses=chooses,
        ask=ask,
        functions=functions,
        files=tuple(functions),
        tool=tool,
        name=name,
        first_calls=monitoring.events.PY_START | monitoring.events.PY_RESUME,
        get_tool=monitoring.get_tool,
        set_local_events=monitoring.set_local_events,
        nested=nested,
        id=id,
        len=len,
        str=str,
        type=type,
    ):
        """``left``: how much more. ``told``: also as code that has not been called. May be interrupted anywhere."""
        pending = [code]
        while pending:
            code = pending.pop()
            key, file = id(code), code.co_filename
            if key in codes or get_tool(tool) != name:
                continue
            if chooses(file):
                bytecode, typed_in = code._co_code_adaptive, file[:1] == "<"
                if left[0] <= 0 or left[1] < typed_in or left[2] < len(bytecode):
                    continue  # it keeps the interpreter's counters
                if told:
                    before[key] = bytecode
                set_local_events(tool, code, first_calls)
                codes[key] = code
                left[0] -= 1
                left[1] -= typed_in
                left[2] -= len(bytecode)
            elif type(file) is not str or not file.endswith(files):
                continue
            else:
                for path in functions:
                    if file.endswith(path) and code.co_qualname in functions[path][0]:
                        ask(code, functions[path][1])
            pending += nested(code)

    def called(
        code,
        _offset,
        function,
        argument,
        left=left,
        few=few,
        asked=state.asked,
        listen=listen,
        code_type=types.CodeType,
        runs=exec,
        evaluates=eval,
        disable=monitoring.DISABLE,
        id=id,
        type=type,
    ):
        if type(argument) is code_type:
            listen(argument, left if id(code) in asked else few)
        if id(code) in asked or function is runs or function is evaluates:
            return None
        return disable

    def returned(
        _code,
        _offset,
        value,
        few=few,
        listen=listen,
        code_type=types.CodeType,
        function_type=types.FunctionType,
        tuple=tuple,
        type=type,
    ):
        if type(value) is function_type:
            listen(value.__code__, few)
        else:  # a compiler's code, maybe with more about it: the program's text has no such function
            made = value[0] if type(value) is tuple and value else value
            if type(made) is code_type:
                listen(made, few, False)

    return listen, ask, called, returned
