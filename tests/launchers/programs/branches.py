"""A program under the recorder of branches, or not: ``branches.py CHECK on|off PROBE``. Prints its results as JSON.

``same``: what has to be the same in both cases. ``recorded``: what the recorder tells; null without it.
"""

import atexit
import contextlib
import ctypes
import io
import json
import os
import signal
import sys
import threading
import time
from opcode import opname

check, switch, probe = sys.argv[1:4]
sys.path.insert(0, probe)
import hangdoc_probe_branches  # noqa: E402
import hangdoc_probe_outcomes  # noqa: E402

ROOTS = [
    os.path.dirname(os.__file__),
    os.path.abspath(probe),
    *(path for path in sys.path if path.endswith("site-packages") or "/libraries-torch" in path),  # see tests/helpers
]
recorder = hangdoc_probe_branches.Branches(ROOTS) if switch == "on" else None
monitoring = sys.monitoring
ENOUGH = 1000
WORK = """
def work(count):
    total = 0
    for number in range(count):
        if number % 3 == 0:
            total += 1
        elif total > 5 and number % 2:
            total -= 1
    return total
"""


PARTS = ("LOAD_FAST", "STORE_FAST", "LOAD_CONST")


class Interrupted(Exception):
    pass


def start():
    if recorder is not None:
        recorder.start(lambda *_: None)


def new_work(file=__file__):
    """A new code object: with the recorder on, its first calls are its busiest."""
    names = {}
    exec(compile(WORK, file, "exec"), names)
    return names["work"]


def decide(value, rows):
    if value is None:
        return "none"
    if not value:
        return "empty"
    while len(rows) < value:
        rows.append(value)
        if len(rows) == 3:
            continue
    try:
        if rows[0] > 1 and value != 2:
            raise ValueError(value)
    except ValueError:
        return [row for row in rows if row]
    return rows


def outcomes():
    start()
    first = [decide(value, []) for value in (None, 0, 1, 2, 3)]
    for value in (1, 1, 2):
        decide(value, [])
    return first


def called_before():
    decide(0, [])
    decide(None, [])
    start()
    return decide(None, [])


def run_before(rows):
    return rows.copy() if rows else len(rows)


def running():
    """What runs when the recorder comes, in this thread and in a generator, and what has run."""
    run_before([])

    def numbers(count):
        for number in range(count):
            if number == 1:
                start()
            yield number
            if number == 2:
                yield -1

    return list(numbers(4))


def signals():
    start()
    raised = caught = 0

    def handle(*_):
        nonlocal raised
        raised += 1
        raise Interrupted

    signal.signal(signal.SIGALRM, handle)
    while raised < ENOUGH:
        try:
            signal.setitimer(signal.ITIMER_REAL, 0.0002 + raised % 50 * 1e-6)
            while True:
                new_work()(60)
        except Interrupted:
            caught += 1
    return caught == raised


def interrupts():
    start()
    caught, sent, going = 0, 0, threading.Event()

    def send():
        nonlocal sent
        while sent < ENOUGH // 4:
            going.wait()
            going.clear()
            time.sleep(0.0002)
            sent += 1
            os.kill(os.getpid(), signal.SIGINT)

    threading.Thread(target=send, daemon=True).start()
    while caught < ENOUGH // 4:
        try:
            going.set()
            while True:
                new_work()(60)
        except KeyboardInterrupt:
            caught += 1
    return caught == sent


def thrown():
    """PyThreadState_SetAsyncExc."""
    start()
    caught, ready, over = 0, threading.Event(), threading.Event()

    def loop():
        nonlocal caught
        while caught < ENOUGH // 4:
            try:
                ready.set()
                while True:
                    new_work()(60)
            except Interrupted:
                caught += 1
        over.set()

    thread = threading.Thread(target=loop, daemon=True)
    thread.start()
    thrown = 0
    while thrown < ENOUGH // 4:
        ready.wait(60)
        ready.clear()
        time.sleep(0.0002)
        thrown += ctypes.pythonapi.PyThreadState_SetAsyncExc(
            ctypes.c_ulong(thread.ident), ctypes.py_object(Interrupted)
        )
        deadline = time.monotonic() + 60
        while caught < thrown and time.monotonic() < deadline:
            time.sleep(0.0005)
    return over.wait(60), caught == thrown


def own_exceptions():
    start()
    found = []
    for number in range(200):
        try:
            decide(number % 7 or None, [])[0]["x"]
        except (TypeError, IndexError, KeyError) as error:
            found.append(f"{type(error).__name__}: {error}")
    return found


def read(number):
    if number == 1:
        raise ValueError(number)
    return {0: "zero"}[number] if number < 9 else json.loads("{")


def caught():
    """What is raised by the program, by a library that it calls, and what goes on to another handler."""
    start()
    found = []

    def catch(number):
        try:
            found.append(read(number))
        except (ValueError, TypeError) as error:
            found.append(type(error).__name__)
        except:  # noqa: E722
            found.append("other")

    for number in (0, 1, 2, 9, 1):
        catch(number)
    with contextlib.suppress(KeyError):
        read(3)
    return found


def caught_often():
    """And a handler that is come to rarely."""
    start()

    def often(count):
        found = 0
        for number in range(count):
            try:
                next(iter(()))
            except StopIteration:
                found += number
        return found

    def rarely():
        try:
            read(1)
        except ValueError:
            return True

    return rarely(), often(100_000)


def caught_among_signals():
    """Exceptions of signals come to the handlers, and leave the blocks, of the function whose branch they come with."""
    start()
    raised = arrived = own = wrong = 0

    def handle(*_):
        nonlocal raised
        raised += 1
        raise Interrupted

    signal.signal(signal.SIGALRM, handle)
    lock = threading.Lock()
    while raised < ENOUGH:
        try:
            signal.setitimer(signal.ITIMER_REAL, 0.0002 + raised % 50 * 1e-6)
            while True:
                with lock:
                    try:
                        read(1)
                    except ValueError:
                        own += 1
        except Interrupted:
            arrived += 1
        # In CPython 3.14.10 a signal may come between the lock and its block, with and without a recorder.
        wrong += (lock.locked() and sys.version_info < (3, 14)) or sys.exc_info()[0] is not None
    return arrived == raised, own > 0, wrong


def rare_among_many():
    """What came out rarely is known long after, with all that came in between; what comes often, as it was last."""
    start()

    def step(number):
        if number == 500:
            return "rare"
        total = 0
        for each in range(8):
            if each % 2:
                total += each
        return total

    return [step(number) for number in range(800)].index("rare")


def leaving():
    """A thread, a finalizer and a hook run to the very end."""
    start()

    class Last:
        def __del__(self, work=new_work()):  # noqa: B008 - kept to the end
            work(50)

    threading.Thread(target=lambda: [new_work()(50) for _ in iter(int, 1)], daemon=True).start()
    atexit.register(new_work(), 50)
    sys.last = Last()
    return True


def forked():
    start()
    work = new_work()
    work(10)
    reading, writing = os.pipe()
    pid = os.fork()
    if not pid:
        tools = [monitoring.get_tool(tool) for tool in range(6)]
        anew = hangdoc_probe_branches.Branches(ROOTS)
        anew.start(lambda *_: None)
        new_work()(10)
        told = hangdoc_probe_outcomes.told(anew)
        os.write(writing, json.dumps([tools, len(told["tests"]) > 0]).encode())
        os._exit(0)
    os.waitpid(pid, 0)
    work(10)
    return json.loads(os.read(reading, 1000))


def other_tools():
    """Those of ids 3 and 4 keep them."""
    monitoring.use_tool_id(3, "third")
    if sys.argv[4:] == ["both"]:
        monitoring.use_tool_id(4, "fourth")
    start()
    new_work()(10)
    return [tool for tool in map(monitoring.get_tool, range(6)) if tool not in (None, "hangdoc")]


def restarted():
    """Somebody else wakes all events."""
    start()
    for _ in range(20):
        new_work()(10)
        decide(1, [])
        monitoring.restart_events()
    return decide(2, [])


def hot():
    start()
    work = new_work()
    work(100)
    return work(400_000)


def hot_and_restarted():
    """What comes too often is woken by somebody else."""
    start()
    work = new_work()
    found = [work(200_000)]
    monitoring.restart_events()
    found.append(work(200_000))
    return found


def driven(steps):
    total = 0
    for step in range(steps):
        total += new_work(f"{ROOTS[0]}/transformers/trainer.py")(1000) + sum(range(300_000))
        if step % 3 == 0:
            total -= 1
    return total


def hot_in_a_framework():
    """The loops that drive the program decide much more in a step than the program does."""
    start()
    return driven(200)


def rare(rows):
    total = 0
    for row in rows:
        if row > 5 and row < 9:
            total += row.real
        if row < 0:
            total = abs(row)
        elif row is None:
            total = min(row, 1)
    return total


def hot_then_rare():
    start()
    first = sum(rare(range(20)) for _ in range(20_000))
    return first, rare([-7])


def walk(tree):
    return sum(walk(each) for each in tree) if tree else 1


class Visitor:
    def visit(self, tree):
        return sum(map(self.visit, tree)) if tree else 1


def interleaved():
    def numbers(count):
        while count:
            count -= 1
            yield count

    start()
    tree = [[[], []], [[], [[], []]]]
    return walk(tree), Visitor().visit(tree), list(numbers(3)), decide(1, [])


def too_many():
    """More code than is recorded: what is called later is left alone."""
    import tempfile

    start()
    with tempfile.TemporaryDirectory() as folder:
        sys.path.insert(0, folder)
        with open(os.path.join(folder, "many_works.py"), "w") as file:
            file.write("works = []\n" + (WORK + "works.append(work)\n") * 4200)
        import many_works

    total = sum(work(1) for work in many_works.works)
    return total, works_executed()


def works_executed():
    """More code than is kept of what a program executes."""
    return sum(new_work()(1) for _ in range(2100))


def typed_in():
    """exec'ed code, and code objects that come and go."""
    start()
    found = []
    for number in range(300):
        names = {"number": number}
        exec("if number % 2:\n    found = 1\nelse:\n    found = 2", names)
        found.append(names["found"] + eval("3 if number > 5 else 4", names))
    return sum(found)


MODULE = """
import functools

def NAME_plain(value):
    return 1 if value else 2

def through(function):
    @functools.wraps(function)
    def call(*args):
        return function(*args)
    return call

def hidden(function):
    return lambda *args: function(*args)

@functools.lru_cache
def NAME_cached(value):
    return 1 if value else 2

@hidden
@through
def NAME_wrapped(value):
    return 1 if value else 2

class Rows:
    @property
    def NAME_size(self):
        return 1 if self else 2

    @classmethod
    def NAME_of(cls, value):
        return NAME_partial(value)

    class Row:
        def NAME_inner(self, value):
            return [each for each in range(3) if value]

def _partial(_, value):
    def NAME_closure():
        return 1 if value else 2
    return NAME_closure()

NAME_partial = functools.partial(_partial, None)

def run(value):
    rows = [NAME_plain(value), NAME_cached(value), NAME_wrapped(value), Rows().NAME_size, Rows.NAME_of(value)]
    return rows, Rows.Row().NAME_inner(value)
"""


def from_modules():
    """Modules that are there already, that come later, that come anew, and one that is run as a program."""
    import importlib
    import runpy
    import tempfile

    with tempfile.TemporaryDirectory() as folder:
        sys.path.insert(0, folder)
        for name in ("early", "late", "ran"):
            with open(os.path.join(folder, f"{name}.py"), "w") as file:
                file.write(MODULE.replace("NAME", name))
        early = importlib.import_module("early")
        start()
        found = [early.run(1)]
        late = importlib.import_module("late")
        found.append(late.run(1))
        with open(os.path.join(folder, "late.py"), "w") as file:
            file.write(MODULE.replace("NAME", "reloaded"))
        os.utime(file.name, (1, 1))  # else its bytecode is that of before
        found.append(importlib.reload(late).run(0))
        found.append(runpy.run_path(os.path.join(folder, "ran.py"))["run"](0))
        return found


def pickled():
    """A function that comes as its code, not by its name."""
    import cloudpickle

    names = {"__name__": "elsewhere"}
    exec(compile(MODULE.replace("NAME", "pickled"), "/elsewhere.py", "exec"), names)
    # Older ones, and Ray's, keep the name of the file.
    text = cloudpickle.dumps(names["pickled_plain"]).replace(b"<dynamic-code>", b"/elsewhere0.py")
    names.clear()
    start()
    return cloudpickle.loads(text)(1)


def libraries():
    """Their code is left as it is: counters, and instructions that are two in one."""
    start()
    code = json.JSONDecoder.raw_decode.__code__
    before = code._co_code_adaptive
    tools = [tool for tool in range(6) if monitoring.get_tool(tool)]
    return before == code._co_code_adaptive, [monitoring.get_local_events(tool, code) for tool in tools[:1]] in (
        [],
        [0],
    )


def straight(one, two):
    three = one
    four = two
    return three + four


def as_compiled():
    """Code of which all is known, or that is told of no more, runs as it was compiled."""
    start()
    work = new_work()
    work(400_000), straight(1, 2)
    found = []
    for code in (work.__code__, straight.__code__):
        plain, now, new = code.co_code, code._co_code_adaptive, code.replace()._co_code_adaptive
        found += [at for at in range(0, len(plain), 2) if opname[plain[at]] in PARTS and now[at] != new[at]]
    return found


def not_called(rows):
    if len(rows) > 1:
        return len(rows)
    return 0


def viztraced():
    import viztracer

    start()
    with contextlib.redirect_stdout(io.StringIO()):
        tracer = viztracer.VizTracer(verbose=0)
        tracer.start()
        for value in (1, 2, 3):
            decide(value, [])
            new_work()(20)
        tracer.stop()
        tracer.parse()
    names = [each["name"] for each in tracer.data["traceEvents"] if each["ph"] == "X"]
    return sorted(name.replace(os.path.abspath(__file__), "") for name in names)


def profiled():
    import cProfile
    import pstats

    start()
    figures = cProfile.Profile()
    figures.enable()
    for value in (1, 2, 3):
        decide(value, [])
        new_work()(20)
    figures.disable()
    with contextlib.redirect_stdout(io.StringIO()):
        found = pstats.Stats(figures).stats
    return sorted([os.path.basename(place[0]), place[2], numbers[0]] for place, numbers in found.items())


def traced():
    """What a debugger or tracer is told, by sys.settrace and sys.setprofile."""
    start()
    events = []

    def trace(frame, event, _):
        events.append([frame.f_code.co_name, event, frame.f_lineno])
        return trace

    sys.settrace(trace)
    sys.setprofile(trace)
    decide(3, [])
    new_work()(7)
    sys.setprofile(None)
    sys.settrace(None)
    decide(3, [])
    return events


def deep():
    start()

    def further(left):
        return further(left - 1) + 1 if left else 0

    def endless():
        return endless()

    try:
        endless()
    except RecursionError as error:
        return further(500), str(error)


def asynchronous():
    import asyncio

    async def one(number):
        for step in range(3):
            if step == number:
                await asyncio.sleep(0)
        return number

    async def every():
        return await asyncio.gather(*(one(number) for number in range(5)))

    start()
    return asyncio.run(every())


def covered():
    import coverage

    measured = coverage.Coverage(data_file=None, branch=False, include=[__file__])
    first = sys.argv[4:] == ["first"]
    if first:
        start()
    measured.start()
    if not first:
        start()
    for value in (None, 1, 3):
        decide(value, [])
    measured.stop()
    for value in (0, 2):
        decide(value, [])
    lines = measured.get_data().lines(__file__)
    body = decide.__code__
    return sorted(line for line in lines if line in {each for _, _, each in body.co_lines()})


def compiled():
    import torch

    def step(model, batch):
        total = model(batch)
        if total.sum() > 0:  # a graph break
            total = total + 1
        for _ in range(3):
            if total.shape[0] > 2:
                total = total * 2
        return total

    torch.manual_seed(0)
    model = torch.nn.Linear(4, 4)
    start()
    from torch._dynamo.testing import CompileCounter
    from torch._dynamo.utils import counters

    counter = CompileCounter()
    run = torch.compile(step, backend=counter)
    results = [run(model, torch.full((3, 4), float(number))).sum().item() for number in (-1, 1, 2)]
    scripted = torch.jit.script(scripted_step)
    traced_step = torch.jit.trace(lambda x: x * 2 + 1, torch.ones(3))
    return [
        [round(each, 5) for each in results],
        counter.frame_count,
        counter.op_count,
        {name: sum(found.values()) for name, found in counters.items() if name in ("frames", "graph_break", "stats")},
        scripted(torch.ones(2), 3).sum().item(),
        traced_step(torch.ones(3)).sum().item(),
    ]


CELL = """
def stopped(rows):
    for row in rows:
        if row > 1:
            break
    return row
print([row for row in range(3) if row], stopped([1, 2, 3]))
"""


def cells():
    """As a notebook's kernel runs them."""
    from IPython.core.interactiveshell import InteractiveShell

    start()
    shell = InteractiveShell.instance()
    with contextlib.redirect_stdout(io.StringIO()) as output:
        done = [shell.run_cell(cell, store_history=True).success for cell in (CELL, "stopped([2])", "1 / 0", CELL)]
    return done, output.getvalue().count("[1, 2] 2"), "ZeroDivisionError" in output.getvalue()


TESTS = """
import pytest

def clamp(value):
    if value < 0:
        return 0
    return value if value < 9 else 9

@pytest.mark.parametrize("value", [-1, 3, 12])
def test_clamp(value):
    assert 0 <= clamp(value) < 9, value

def test_raises():
    with pytest.raises(ZeroDivisionError):
        clamp(1) / clamp(-1)
"""


def tested():
    """pytest rewrites assertions, and runs tests in this process."""
    import tempfile

    import pytest

    class Outcomes:
        def __init__(self):
            self.found = []

        def pytest_runtest_logreport(self, report):
            if report.when == "call":
                self.found.append([report.nodeid.partition("::")[2], report.outcome])

    start()
    outcomes = Outcomes()
    with tempfile.TemporaryDirectory() as folder, contextlib.redirect_stdout(io.StringIO()) as output:
        path = os.path.join(folder, "test_clamped.py")
        with open(path, "w") as file:
            file.write(TESTS)
        status = pytest.main(["-q", "-p", "no:cacheprovider", path], plugins=[outcomes])
    return int(status), outcomes.found, "assert 9 < 9" in output.getvalue()


def debugged():
    """debugpy stops at a breakpoint in a loop that is recorded, as an editor has it do."""
    import debugpy

    sys.path.insert(0, os.path.dirname(__file__))
    from debugger import Editor

    editor = Editor(debugpy.listen(("127.0.0.1", 0)))
    first = decide.__code__.co_firstlineno
    editor.attach(__file__, first + 5)
    debugpy.wait_for_client()
    start()
    found = [decide(value, []) for value in (0, 1, 2, 3)]
    return found, [line - first for line in editor.stops()]


def scripted_step(x, count: int):
    for number in range(count):
        if number % 2 == 0:
            x = x + 1
    return x


def loaders():
    """Workers of a DataLoader have no recorder."""
    import torch

    class Tools(torch.utils.data.Dataset):
        def __len__(self):
            return 4

        def __getitem__(self, index):
            new_work()(10)
            return [monitoring.get_tool(3) is None and monitoring.get_tool(4) is None, index].index(True) + index

    start()
    loader = torch.utils.data.DataLoader(Tools(), num_workers=2, batch_size=2, multiprocessing_context="fork")
    return [batch.tolist() for batch in loader]


same = globals()[check]()
told, events = None, []
if recorder is not None:
    told = hangdoc_probe_outcomes.told(recorder)
    events = [monitoring.get_events(recorder.tool)] if recorder.tool is not None else []
print(json.dumps({"same": same, "recorded": told, "events": events}))
