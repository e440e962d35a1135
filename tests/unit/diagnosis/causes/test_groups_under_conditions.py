"""Which condition kept a rank from making a group, where its stack shows another one?"""

from __future__ import annotations

from types import SimpleNamespace

import pytest
from called_jobs import C10D, FILE

from hangdoc.diagnosis.causes.starting import _made_under_condition
from hangdoc.diagnosis.source.sources import Sources
from hangdoc.model.process import Frame
from hangdoc.model.snapshot import SourceText

MADE = """def groups_of(names, extra):
    made = []
    if extra:
        {call}
    made.append(dist.new_group([2, 3]))
"""


@pytest.mark.parametrize(
    ("call", "line"), [('names.append("extra")', None), ("made.append(dist.new_group([1]))", 4)]
)  # fmt: skip
def test_a_list_that_grows_makes_no_group(call: str, line: int | None) -> None:
    case = SimpleNamespace(sources=Sources((SourceText(FILE, "<module>", 1, MADE.format(call=call)),)))
    found = _made_under_condition(case, (Frame(C10D, 9, "new_group"), Frame(FILE, 5, "groups_of")))  # type: ignore[arg-type]
    assert (found[0].line if found is not None else None) == line
