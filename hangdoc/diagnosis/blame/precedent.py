"""Whose arguments are without precedent: which side of one call is to blame that ranks make with different arguments.

Two sides of a call say nothing about which of them is right. But programs repeat themselves: arguments that no such
call was ever given are the wrong ones. Where both were given before, what always came after the calls before this one
tells a rank that is at another call than its place in the loop.

Example: the calls of the group always were A, B, A, B; now one rank gives A after A, the other B → the first is at
another call, as it left one out.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from dataclasses import replace
from itertools import chain

from hangdoc.diagnosis.blame.arguments import Disagreement, arguments_of
from hangdoc.diagnosis.bounds import FEWEST, TRIED
from hangdoc.diagnosis.calls.exchanged import calls_from, is_exchanged
from hangdoc.diagnosis.calls.history import Token, distinct
from hangdoc.diagnosis.context import Case
from hangdoc.diagnosis.explanation import Blame
from hangdoc.model.kinds import Confidence
from hangdoc.model.wording import ranks_text


def blamed_by_precedent(case: Case, found: Disagreement) -> Blame[Disagreement]:
    """``blame_of``; between two sides, on devices, the one whose arguments no rank ever gave such a call before, or not
    after the calls before this one.

    Example: rank 0 gives [64], rank 1 [128], and all calls of that kind that completed had [64] → rank 1.
    """
    blamed = blame_of(found, len(found.history.blind))
    if found.what != "arguments" or not case.streams:
        return blamed
    if not blamed.alternatives:
        doubted = is_another_call(case, found, blamed.culprits) or changed_places(case, found, blamed.culprits)
        return replace(blamed, confidence=Confidence.LIKELY) if doubted else blamed
    sides = [blamed.culprits, *blamed.alternatives]
    new = given_for_the_first_time(case, found, sides)
    if len(new) == 1:
        sure = f"{blamed.sure}; {ranks_text(new[0])} alone gave what no such call had been given before"
        return replace(blamed, culprits=new[0], alternatives=(), confidence=Confidence.LIKELY, sure=sure)
    odd = [side for side in sides if out_of_turn(case, found, side)] if not new else []
    if not new and len(odd) != 1:
        odd = [side for side in sides if out_of_turn(case, found, side, among_several=True)]
    if len(odd) != 1:
        return blamed
    sure = f"{blamed.sure}; {ranks_text(odd[0])} alone left the order that such calls always had"
    return replace(blamed, culprits=odd[0], alternatives=(), confidence=Confidence.LIKELY, sure=sure)


def is_another_call(case: Case, found: Disagreement, culprits: tuple[int, ...]) -> bool:
    """True if the culprits are at another call than the others, whose arguments such calls have had before, and not at
    the same one with wrong arguments. Without stacks, any of their group may be it."""
    others = tuple(rank for rank in found.tokens if rank not in culprits)
    if not others or given_for_the_first_time(case, found, [culprits, others]):
        return False
    mine, theirs = (found.tokens[ranks[0]] for ranks in (culprits, others))
    here, there = _from_there_on(case, mine), _from_there_on(case, theirs)
    if is_exchanged(here, there):
        return False
    if found.site is None:
        return True
    # Arguments that the line never had are wrong ones, though other lines have them.
    known = any(_kind(call) == _kind(mine) for _, calls in _alike(case, found) for call in calls if call is not mine)
    return known and out_of_turn(case, found, culprits) and not out_of_turn(case, found, others)


def changed_places(case: Case, found: Disagreement, culprits: tuple[int, ...]) -> bool:
    """True if the culprits make the others' call later, and what follows agrees: then two calls changed places, and
    none may have wrong arguments."""
    other = next((token for rank, token in found.tokens.items() if rank not in culprits), None)
    mine = found.tokens[culprits[0]]
    return other is not None and is_exchanged(_from_there_on(case, mine), _from_there_on(case, other))


def _from_there_on(case: Case, call: Token) -> list[tuple[Hashable, ...]]:
    """What its rank issues from that call on in the group. Ranks of one call may issue it from lines of their own, as
    the root of a broadcast does: lines are not compared."""
    return [kind[:-1] for kind in calls_from(case.programs, call, call.group)]


def given_for_the_first_time(case: Case, found: Disagreement, sides: list[tuple[int, ...]]) -> list[tuple[int, ...]]:
    """The sides whose arguments no rank ever gave to a call of such a group before."""
    numbers = {token.sequence for token in found.tokens.values()}
    known = {
        arguments_of(call)
        for own, calls in _alike(case, found)
        for call in calls
        if not own or call.sequence not in numbers
    }
    return [side for side in sides if arguments_of(found.tokens[side[0]]) not in known]


def out_of_turn(case: Case, found: Disagreement, side: tuple[int, ...], *, among_several: bool = False) -> bool:
    """True if such calls always had other arguments after those that came before this one.

    As few of the calls before are compared as decide it. Example: A, A, B, A, A and now B or A: after A came both,
    after A, A always B → A is out of turn. ``among_several``: the calls that followed may differ among themselves, as
    where a loss is told every other step: A, B, A, C, A and now B or D → D is.
    """
    token = found.tokens[side[0]]
    before = [found.history.at(token.rank, token.sequence - ago) for ago in range(1, TRIED + 1)]
    context = [_kind(call) for call in before[: before.index(None) if None in before else None] if call is not None]
    known = [
        [_kind(call) for call in calls if not own or call.sequence < token.sequence]
        for own, calls in _alike(case, found)
    ]
    for length in range(1, len(context) + 1):
        follow = [followers(calls, context[:length][::-1]) for calls in known]
        kinds = set(chain.from_iterable(follow))
        if len(kinds) == 1 or (among_several and kinds and _kind(token) not in kinds):
            # One rank's own calls, as those of another may be the same ones.
            return max(map(len, follow)) >= FEWEST and _kind(token) not in kinds
        if not kinds:
            return False
    return False


def followers(calls: Sequence[Hashable], context: Sequence[Hashable]) -> list[Hashable]:
    """What came after each place at which those calls, the oldest first, came one after the other."""
    length = len(context)
    return [
        calls[end]
        for end in range(length, len(calls))
        if calls[end - 1] == context[-1] and calls[end - length : end] == context
    ]


def _kind(call: Token) -> Hashable:
    return arguments_of(call), call.site


def _alike(case: Case, found: Disagreement) -> Iterator[tuple[bool, list[Token]]]:
    """(whether it is of the very group, the calls) of each different program in the groups of that name."""
    alike = {h.key for h in case.histories if h.label == found.history.label}
    looked_at: set[Hashable] = set()
    for program, _ in distinct(case.programs):
        for name, track in program.recording.by_group.items():
            own = program.key(name) == found.history.key
            # Rows of a mesh issue the same calls in groups of their own.
            content = program.recording.content_of(name)
            if program.key(name) not in alike or (content is not None and (content, own) in looked_at):
                continue
            looked_at.add((content, own))
            yield own, program.tokens_at(name, track.places)


def blame_of(found: Disagreement, unknown: int = 0) -> Blame[Disagreement]:
    """The ranks whose arguments differ from the majority's; without a majority, each side in turn.

    ``unknown``: members of the group that were not seen; each may be on any side. Example: values of ranks 0 and 1 are
    'a', that of rank 2 is 'b' → rank 2; with one unknown member → rank 2, or ranks 0 and 1.
    """
    sides = found.sides
    minority = len(sides) > 1 and len(sides[0]) + unknown < len(sides[-1])
    odd = tuple(sorted(r for side in sides[:-1] for r in side)) if minority else sides[0]
    how = Confidence.LIKELY if minority else Confidence.POSSIBLE
    if minority and found.what == "arguments" and not unknown:
        how = Confidence.CERTAIN
    every = "" if unknown else "all "
    sure = (
        f"the same call of {'both' if every and len(found.tokens) == 2 else f'{every}{len(found.tokens)}'} ranks seen"
    )
    sure += f", that of {unknown} not" if unknown else ""
    if found.gone_on:
        wrong = tuple(sorted(rank for rank, value in found.values.items() if value == found.gone_on))
        sure += "; the root that it names has gone on, that of the others has not"
        return Blame(found, wrong, proved=True, confidence=Confidence.LIKELY, sure=sure)
    return Blame(found, odd, () if minority else tuple(sides[1:]), proved=True, confidence=how, sure=sure)
