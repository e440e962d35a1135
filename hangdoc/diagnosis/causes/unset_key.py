"""HD305: a rank left out setting the store key that bears its number."""

from __future__ import annotations

from hangdoc.diagnosis.blame.unset_key import UnsetKey
from hangdoc.diagnosis.causes.finding import Finding
from hangdoc.diagnosis.causes.phrases import at, cited, place
from hangdoc.diagnosis.causes.registry import cause
from hangdoc.diagnosis.context import Case
from hangdoc.diagnosis.explanation import Blame
from hangdoc.diagnosis.frames.stacks import user_stack
from hangdoc.diagnosis.source.guards import CONDITIONS, guards
from hangdoc.diagnosis.source.queries import calls_of
from hangdoc.model.diagnosis import Activity
from hangdoc.model.message import Condition, Does, Joined, Message, joined, sentence
from hangdoc.model.process import Frame

_MOST_KEYS = 4
"""Keys that a sentence names; chosen by hand."""


@cause("HD305", explains=UnsetKey, order=379)
def own_key_left_out(case: Case, blame: Blame[UnsetKey]) -> Finding:
    """HD305: each rank sets a key of its own and waits for those of all, and some have left theirs out."""
    found = blame.found
    first = case.activities[found.waiting[0]]
    deciding = _deciding(case, found.set_at, case.activities[blame.culprits[0]])
    missing = Joined([f"{key}" for key in found.missing[:_MOST_KEYS]])
    there: Message = f"{len(found.there)} keys of the same name are there" if len(found.there) > 1 else "another is"
    return Finding(
        "HD305",
        sentence(
            [
                [Does(blame.culprits, "has", "have"), " not set ", missing, " in the store, for which "],
                [Does(found.waiting, "waits", "wait"), at(first.where)],
            ]
        ),
        joined(
            ["in the store ", missing, f" {'is' if len(found.missing) == 1 else 'are'} missing, and ", there],
            ["every rank sets its own at ", place(found.set_at)],
            [Joined(deciding, " and "), " decides whether it does"] if deciding else "",
        ),
        "let every rank set its key in every round, whatever it has to say, and give the wait a timeout",
        decided_at=deciding[-1] if deciding else None,
    )


def _deciding(case: Case, set_at: Frame, culprit: Activity) -> list[Condition]:
    """The conditions around the call that sets a key: in its function, or else around the only call of that function;
    without those that the culprit has passed."""
    trees = [(frame, case.sources.function(frame.file, frame.line)) for frame in user_stack(culprit.stack)]
    known = {guard.place for frame, tree in trees if tree is not None for guard in guards(tree, frame.line)}
    lines = [(set_at.file, set_at.line)]
    for file in case.sources.files():
        calls = {line for _, tree in case.sources.trees(file) for line in calls_of(tree, set_at.function)}
        lines += [(file, line) for line in sorted(calls)]
    for file, line in lines:
        tree = case.sources.function(file, line)
        around = guards(tree, line) if tree is not None else []
        found = [cited(g, file) for g in around if g.kind in CONDITIONS and g.place not in known]
        if found:
            return found[-2:]
    return []
