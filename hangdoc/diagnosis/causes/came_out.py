"""Whether a rank has come out of a line in which a library makes several calls, or goes on in it, by its previous call.

Example: the others called A A A from one line, the rank A A and then B from another one → it has come out of the line.
"""

from __future__ import annotations

from hangdoc.diagnosis.calls.alignment import Gap
from hangdoc.diagnosis.calls.history import Token
from hangdoc.diagnosis.context import Case
from hangdoc.diagnosis.frames.stacks import lines_of


def was_inside(case: Case, gap: Gap) -> bool:
    """True if the culprits' last call before they went on came from the line whose call is missing now.

    Example: the others called A A A, the culprits A A and then B from another line → True.
    """
    return gap.mine is not None and has_come_out(case, gap.mine, gap.token)


def has_come_out(case: Case, gone: Token, inside: Token) -> bool:
    """True if the last call of the rank of ``gone`` before it came from the line of ``inside``."""
    program = case.programs.get(gone.rank)
    if program is None or not 0 < gone.order <= len(program.journal.calls):
        return False
    before = program.token(gone.order - 1)
    return lines_of(before.site) == lines_of(inside.site) != lines_of(gone.site)


def goes_on_from_its_line(case: Case, gap: Gap) -> bool:
    """True if the extra call comes from the line that issued the last call that still matched.

    Example: the culprits called A A A, the others A A and then B → True.
    """
    if gap.mine is None or gap.theirs is None or gap.mine.order < 1 or gap.theirs.order < 1:
        return False
    known = [token for token in (gap.mine, gap.theirs) if token.rank in case.programs]
    before = [case.programs[token.rank].token(token.order - 1).site for token in known]
    return gap.theirs.site != gap.mine.site and before == [gap.mine.site, gap.mine.site]
