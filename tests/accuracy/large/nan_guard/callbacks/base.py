"""The interface of callbacks, and a list of them that acts as one."""

from __future__ import annotations


class Callback:
    """Does nothing at each of its moments; subclasses override what they need."""

    order = 50

    def start(self, trainer):
        """Training begins."""

    def before_step(self, state):
        """A batch has come; nothing is computed yet."""

    def vetoes(self, state):
        """True where the update of this step must be left out."""
        return False

    def after_step(self, state):
        """The step is over, with or without an update."""

    def report(self, state):
        """The steps of all ranks were exchanged."""

    def stops(self, row):
        """True where training must end after this epoch."""
        return False

    def end(self, trainer, history):
        """Training is over."""


class CallbackList(Callback):
    """Calls all of its members in their order; those of one order as they were added."""

    def __init__(self):
        self.members = []

    def add(self, callback):
        at = len(self.members)
        while at > 0 and self.members[at - 1].order > callback.order:
            at -= 1
        self.members.insert(at, callback)

    def start(self, trainer):
        for each in self.members:
            each.start(trainer)

    def before_step(self, state):
        for each in self.members:
            each.before_step(state)

    def vetoes(self, state):
        # Everybody is asked, so that all can count.
        answers = [each.vetoes(state) for each in self.members]
        return any(answers)

    def after_step(self, state):
        for each in self.members:
            each.after_step(state)

    def report(self, state):
        for each in self.members:
            each.report(state)

    def stops(self, row):
        answers = [each.stops(row) for each in self.members]
        return any(answers)

    def end(self, trainer, history):
        for each in reversed(self.members):
            each.end(trainer, history)
