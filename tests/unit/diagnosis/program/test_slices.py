"""What a backward slice reaches, how, and in which order: a small program for each way that leads on."""

import textwrap

import pytest

from hangdoc.diagnosis.program import Predicate, Program
from hangdoc.model.snapshot import Module

START, GOAL = "# start", "# goal"


def program_of(**files):
    texts = {f"/job/{name.replace('__', '/')}.py": textwrap.dedent(text).lstrip("\n") for name, text in files.items()}
    return Program((), [Module(file, "sha256:0", text) for file, text in texts.items()]), texts


def marked(texts, mark):
    places = [(f, n) for f, text in texts.items() for n, line in enumerate(text.split("\n"), 1) if mark in line]
    assert len(places) == 1
    return places[0]


def reached(stack=(), ran=None, **files):
    """(all that is reached from the line '# start', the place of '# goal')."""
    program, texts = program_of(**files)
    return list(program.slice_back(*marked(texts, START), stack=stack, ran=ran)), marked(texts, GOAL)


def outcomes(found, goal):
    predicates = [each for each in found if isinstance(each.item, Predicate)]
    return [each.outcome for each in predicates if (each.item.file, each.item.line) == goal]


CASES = {
    "what is read in a test, set under a condition": (
        """
        def f(n, limit):
            stale = False
            if n > limit:  # goal
                stale = True
            if stale:
                return
            reduce()  # start
        """,
        "False",
    ),
    "a condition around the one under which it is set": (
        """
        def f(n, limit, xs):
            stale = False
            if n > limit:  # goal
                for x in xs:
                    if x:
                        stale = True
            if not stale:
                reduce()  # start
        """,
        "False",
    ),
    "a condition under which the function that sets it is called": (
        """
        class Trainer:
            def mark(self):
                self.stale = True
            def check(self, x):
                if x > 3:  # goal
                    self.mark()
            def step(self):
                if self.stale:
                    return
                reduce()  # start
        """,
        "False",
    ),
    "an exception that was caught before a name was set": (
        """
        def f():
            fresh = False
            try:
                load()
            except OSError:  # goal
                fresh = True
            if not fresh:
                reduce()  # start
        """,
        "ended",
    ),
    "a loop whose end leaves a name as it was": (
        """
        def f(xs):
            seen = False
            for x in xs:  # goal
                seen = True
            if not seen:
                reduce()  # start
        """,
        "ended",
    ),
    "what empties a list": (
        """
        def f(n):
            jobs = make()
            while jobs:
                if n > 3:  # goal
                    jobs.clear()
            reduce()  # start
        """,
        "True",
    ),
    "an attribute that another method sets": (
        """
        class Trainer:
            def __init__(self):
                self.stale = False
            def check(self, loss):
                if loss > 3:  # goal
                    self.stale = True
            def step(self):
                if self.stale:
                    return
                reduce()  # start
        """,
        "False",
    ),
    "an attribute that is set from outside": (
        """
        class Trainer:
            def step(self):
                if not self.stop:
                    reduce()  # start
        def check(trainer, loss):
            if loss > 3:  # goal
                trainer.stop = True
        """,
        "False",
    ),
    "a global that another function sets": (
        """
        stop = False
        def check(loss):
            global stop
            if loss > 3:  # goal
                stop = True
        def step():
            if stop:
                return
            reduce()  # start
        """,
        "False",
    ),
    "what was put into a list": (
        """
        def f(xs):
            kept = []
            for x in xs:
                if x > 0:  # goal
                    kept.append(x)
            for each in kept:
                reduce(each)  # start
        """,
        "True",
    ),
    "the order of a list": (
        """
        def plan(step):
            tasks = ["a", "b"]
            if step == 4:  # goal
                tasks.reverse()
            return tasks
        def f(step):
            for each in plan(step):
                reduce(each)  # start
        """,
        "True",
    ),
    "what another method puts into a queue": (
        """
        class Feed:
            def fill(self, x):
                if x.ok:  # goal
                    self.jobs.put(x)
            def run(self):
                job = self.jobs.get()
                if job is None:
                    return
                reduce(job)  # start
        """,
        "True",
    ),
    "a call's value": (
        """
        def late(step):
            if step > 3:  # goal
                return True
            return False
        def f(step):
            if late(step):
                return
            reduce()  # start
        """,
        "False",
    ),
    "an argument": (
        """
        def save(wanted):
            if wanted:
                barrier()  # start
        def f(step):
            chosen = False
            if step > 3:  # goal
                chosen = True
            save(chosen)
        """,
        "True",
    ),
    "a caller": (
        """
        def save():
            barrier()  # start
        def f(step):
            if step > 3:  # goal
                save()
        """,
        "True",
    ),
    "a generator": (
        """
        def batches(xs):
            for x in xs:
                if x.empty:  # goal
                    continue
                yield x
        def f(xs):
            for each in batches(xs):
                reduce(each)  # start
        """,
        "False",
    ),
    "an iterator of a class": (
        """
        class Loader:
            def __iter__(self):
                for x in self.xs:
                    if x.empty:  # goal
                        continue
                    yield x
        def f():
            loader = Loader()
            for each in loader:
                reduce(each)  # start
        """,
        "False",
    ),
    "a length": (
        """
        class Plan:
            def __len__(self):
                if self.short:  # goal
                    return 3
                return 4
        class Runner:
            def __init__(self):
                self.plan = Plan()
            def run(self):
                for each in range(len(self.plan)):
                    reduce(each)  # start
        """,
        "",
    ),
    "a property": (
        """
        class Plan:
            @property
            def done(self):
                if self.short:  # goal
                    return True
                return False
            def run(self):
                if not self.done:
                    reduce()  # start
        """,
        "False",
    ),
    "an object that is called": (
        """
        class Net:
            def forward(self, x):
                if x is None:  # goal
                    return 0
                return x
        def f(x):
            net = Net()
            y = net(x)
            if y:
                reduce()  # start
        """,
        "False",
    ),
    "a hook that is handed on": (
        """
        def hook(grad):
            reduce(grad)  # start
        def f(p):
            if p.requires_grad:  # goal
                p.register_hook(hook)
        """,
        "True",
    ),
    "a thread's target": (
        """
        class Feed:
            def start(self):
                if self.enabled:  # goal
                    Thread(target=self.run).start()
            def run(self):
                barrier()  # start
        """,
        "True",
    ),
    "partial": (
        """
        def late(limit, step):
            if step > limit:  # goal
                return True
            return False
        def f(step):
            check = partial(late, 3)
            if check(step):
                reduce()  # start
        """,
        "True",
    ),
    "an exception of a function that was called": (
        """
        def load(x):
            if x.broken:  # goal
                raise ValueError("broken")
            return x
        def f(x):
            try:
                load(x)
            except ValueError:
                return
            reduce()  # start
        """,
        "False",
    ),
    "the end of a loop before it": (
        """
        def f(xs):
            for x in xs:  # goal
                step(x)
            barrier()  # start
        """,
        "ended",
    ),
    "the way out of an endless loop": (
        """
        def f():
            while True:
                if done():  # goal
                    break
                step()
            barrier()  # start
        """,
        "True",
    ),
    "a conditional expression": (
        """
        def f(a):
            size = 3 if a else 4  # goal
            for i in range(size):
                reduce(i)  # start
        """,
        "",
    ),
    "a filter of a comprehension": (
        """
        def f(xs):
            kept = [x for x in xs
                    if x > 0]  # goal
            for each in kept:
                reduce(each)  # start
        """,
        "",
    ),
    "a field of a dataclass": (
        """
        class Options(NamedTuple):
            limit: int
        def make(rank):
            size = 1
            if rank == 0:  # goal
                size = 2
            return Options(limit=size)
        def f(options):
            if options.limit > 1:
                reduce()  # start
        """,
        "True",
    ),
    "a variable of the function around": (
        """
        def f(a):
            last = False
            if a:  # goal
                last = True
            def inner():
                if last:
                    reduce()  # start
            inner()
        """,
        "True",
    ),
    "the default of a parameter": (
        """
        LIMIT = 3
        if rank == 0:  # goal
            LIMIT = 4
        def f(x, limit=LIMIT):
            if x > limit:
                reduce()  # start
        f(1)
        """,
        "True",
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_reached(name):
    code, outcome = CASES[name]
    found, goal = reached(main=code)
    assert outcome in outcomes(found, goal)


ROUNDS = """
    def rows(path, keep):
        for line in open(path):
            if line in keep:  # goal
                yield parsed(line)

    def parsed(line):
        return 0 if line == "" else int(line)

    def main(path, keep, out):
        for row in {}:
            out.append(row)
        reduce()  # start
"""


@pytest.mark.parametrize("gone_through", ["rows(path, keep)", "enumerate(rows(path, keep))"])
def test_how_often_a_loop_goes_round_does_not_depend_on_what_it_is_given(gone_through):
    found, goal = reached(train=ROUNDS.format(gone_through))
    assert outcomes(found, goal)
    assert 'line == ""' not in {each.item.text for each in found}


def test_what_a_loop_is_given_decides_where_it_is_read():
    found, _ = reached(train=ROUNDS.format("rows(path, keep)").replace("reduce()", "reduce(row)"))
    assert 'line == ""' in {each.item.text for each in found}


def test_each_half_of_a_test_knows_what_it_was():
    text = """
        def stop(self):
            if self.waited > 3:  # goal
                self.done = True

        def main(self):
            while self.epoch < 9 and not self.done:
                reduce()  # start
    """
    found, goal = reached(train=text)
    assert outcomes(found, goal) == ["False"]
