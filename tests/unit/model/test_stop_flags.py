"""Names that end a library's loop, and the lines that set them."""

from __future__ import annotations

import ast

import pytest

from hangdoc.model.stop_flags import flags, flags_in, leaving_tests, raising_methods, set_at, setters

LIBRARY = ast.parse("""
class Engine:
    def __init__(self):
        self.halt = True

    @property
    def done(self):
        if self.limit > 3:
            return True
        return self.owner.halt and self.allowed

    def stop(self, softly=False):
        self.halt = "soft" if softly else True

    def reset(self):
        self.halt = False

    def run(self):
        while not self.done:
            self.halt = True
            self.step()
            if self.broken is True:
                break
""")


@pytest.mark.parametrize(
    ("test", "found"),
    [
        ("not self.is_done(self.state) and not self.stop", {"is_done", "stop"}),
        ("self.flag is True or self.other == 'soft'", {"flag", "other"}),
        ("self.step < self.limit", set()),
        ("done", set()),
    ],
)
def test_what_decides_a_test(test, found):
    assert flags_in(ast.parse(test, mode="eval").body) == found


def test_a_property_is_decided_by_what_it_reads():
    assert flags(leaving_tests(LIBRARY), LIBRARY) == {"done", "halt", "allowed", "broken"}


def test_a_setter_sets_a_flag_and_runs_no_loop():
    assert setters(LIBRARY, {"halt"}) == {"stop": {"halt"}}


def test_where_the_user_sets_it():
    user = ast.parse("engine.stop()\nengine.halt = loss < best\nengine.halt = False\nself.halt = halt\nengine.run()")
    assert set_at(user, {"halt"}, {"stop"}) == [(1, "stop"), (2, "halt")]


def test_a_method_that_raises_to_end_an_epoch_leaves_the_loop() -> None:
    library = ast.parse(
        "def run(self):\n    for x in self.data:\n        yield from self.check()\n        self.verify()\n"
        "def check(self):\n    if self.ends_epoch:\n        raise EndOfEpoch()\n"
        "def verify(self):\n    if self.broken:\n        raise ValueError('broken')\n"
        "def end_epoch(self):\n    self.ends_epoch = True\n"
    )
    found = flags(leaving_tests(library.body[0], raising_methods(library)), library)
    assert found == {"check", "ends_epoch"}
    assert setters(library, found) == {"end_epoch": {"ends_epoch"}}
