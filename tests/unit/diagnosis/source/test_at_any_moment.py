"""What a program registers with the interpreter, which runs it at any moment."""

import pytest

from hangdoc.diagnosis.source.sources import Sources
from hangdoc.model.snapshot import SourceText

FILE = "/home/me/train.py"
PLOT = "class Plot:\n    def save(self):\n        self.figure.write()\n"
CHECKPOINTS = "class Checkpoints:\n    def save(self, trainer):\n        dist.barrier()\n"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (PLOT + "atexit.register(plot.save)\n", True),
        (PLOT, False),
        # Whose save() was registered is not in the text.
        (PLOT + CHECKPOINTS + "atexit.register(plot.save)\n", False),
    ],
)
def test_registered_is_the_only_function_of_a_name(text: str, expected: bool) -> None:
    sources = Sources((SourceText(FILE, "<module>", 1, text),))
    assert bool(sources.registered_with(FILE, "save")) is expected


def test_what_registered_it_is_told() -> None:
    text = "def stop(number, frame):\n    dist.barrier()\n\nsignal.signal(signal.SIGUSR1, stop)\n"
    assert Sources((SourceText(FILE, "<module>", 1, text),)).registered_with(FILE, "stop") == "signal.signal"
