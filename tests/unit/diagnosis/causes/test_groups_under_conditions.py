"""Which condition kept a rank from making a group, where its stack shows another one?"""

from __future__ import annotations

import pytest
from called_jobs import C10D, FILE

from hangdoc.diagnosis.condition.elsewhere.made_groups import made_under_condition
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
    sources = Sources((SourceText(FILE, "<module>", 1, MADE.format(call=call)),))
    found = made_under_condition(sources, (Frame(C10D, 9, "new_group"), Frame(FILE, 5, "groups_of")))
    assert (found[0].line if found is not None else None) == line
