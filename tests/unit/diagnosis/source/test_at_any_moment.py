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
    assert sources.is_signal_handler(FILE, "save") is expected
