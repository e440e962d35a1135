"""Which line makes what a rank polls for, and under which condition?"""

from __future__ import annotations

from hangdoc.diagnosis.causes.polled import made_elsewhere, set_elsewhere
from hangdoc.diagnosis.source.sources import Sources
from hangdoc.model.process import Frame
from hangdoc.model.snapshot import SourceText

FILE = "/job/prep.py"
MARKS = """\
class Prep:
    def write(self, part):
        out = self.root / name_of(part)
        out.write_text(part.text)
        if len(part.kept) < self.least:
            return
        out.with_suffix(".done").touch()

    def build(self, parts):
        while not all(self.mark(part).exists() for part in parts):
            time.sleep(1)
        self.index.write_text(parts)
"""
EXPORT = """\
class Export:
    def path(self, name):
        return self.root / name

    def notes(self, text):
        self.log_file.write_text(text)

    def save(self, names):
        for name in names:
            if self.worth(name):
                os.replace(part, self.path(name))

    def load(self, name):
        path = self.path(name)
        while True:
            if path.is_file():
                return read(path)
            time.sleep(1)

def main(export, rank):
    if rank == 0:
        export.save(names)
"""


def _found(text: str, line: int) -> tuple[int | None, list[str]] | None:
    found = made_elsewhere(Sources((SourceText(FILE, "<module>", 1, text),)), (Frame(FILE, line, "wait"),))
    return (found[0].line, [each.source for each in found[1]]) if found is not None else None


def test_a_mark_is_what_is_polled_for() -> None:
    assert _found(MARKS, 11) == (7, ["if len(part.kept) < self.least:"])


def test_what_has_the_same_names_is_polled_for() -> None:
    assert _found(EXPORT, 18) == (11, ["if self.worth(name):"])


def test_a_test_of_the_rank_around_the_call_decides_nothing() -> None:
    assert _found(EXPORT.replace("if self.worth(name):\n    ", "self.worth(name)\n"), 18) is None


def test_a_loop_that_asks_by_a_function() -> None:
    asked = MARKS.replace("not all(self.mark(part).exists() for part in parts)", "not self.ready(parts)")
    asked += "\n    def ready(self, parts):\n        return all(self.mark(part).exists() for part in parts)\n"
    assert _found(asked, 11) == (7, ["if len(part.kept) < self.least:"])


LEADER = """\
class Leader:
    def measure(self):
        self.store.set("load", self.load)

    def announce(self, turn):
        if self.load > self.limit:
            return
        self.store.set("plan", turn)

    def follow(self):
        return self.store.get("plan")
"""


def test_the_only_call_under_a_condition_that_sets_a_key() -> None:
    sources = Sources((SourceText(FILE, "<module>", 1, LEADER),))
    at, deciding = set_elsewhere(sources, Frame(FILE, 11, "follow")) or (None, [])
    assert at is not None
    assert (at.line, [each.source for each in deciding]) == (8, ["if self.load > self.limit:"])


def test_two_such_calls_tell_nothing() -> None:
    twice = LEADER.replace('        self.store.set("load"', '        if self.load:\n            self.store.set("load"')
    assert set_elsewhere(Sources((SourceText(FILE, "<module>", 1, twice),)), Frame(FILE, 12, "follow")) is None
