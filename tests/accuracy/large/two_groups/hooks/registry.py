"""The registry of hooks, and the order in which they run."""

from dataclasses import dataclass
from typing import Any


@dataclass
class Hook:
    name: str
    call: Any
    priority: int
    payload: Any = None
    every: int = 1
    enabled: bool = True
    calls: int = 0

    def due(self, step):
        return self.enabled and (self.every == 1 or step % self.every == 0)


class Registry:
    """Hooks by name. Low priorities run first; hooks with little to send let the others go ahead."""

    def __init__(self):
        self.hooks = {}
        self.deferrals = 0

    def register(self, name, *, priority, payload=None):
        """Decorator. ``payload``: gives, for a state, the bytes that the hook has to send."""

        def keep(function):
            if name in self.hooks and self.hooks[name].call is not function:
                raise ValueError(f"two hooks are called {name}")
            self.hooks[name] = Hook(name, function, priority, payload)
            return function

        return keep

    def select(self, config):
        unknown = [name for name in config["use"] if name not in self.hooks]
        if unknown:
            raise SystemExit(f"no such hooks: {', '.join(unknown)}; there are {', '.join(sorted(self.hooks))}")
        for hook in self.hooks.values():
            hook.enabled = hook.name in config["use"]
            hook.every = config["every"].get(hook.name, 1)
            hook.priority = config["priorities"].get(hook.name, hook.priority)

    def names(self):
        return [hook.name for hook in self.sorted() if hook.enabled]

    def sorted(self):
        return sorted(self.hooks.values(), key=lambda hook: (hook.priority, hook.name))

    def plan(self, state):
        """The hooks that are due, in the order in which they have to run."""
        sending, later, rest = [], [], []
        for hook in self.sorted():
            if not hook.due(state.step):
                continue
            if hook.payload is not None and hook.payload(state) < state.small_below:
                later.append(hook)
                self.deferrals += 1
            elif hook.payload is not None:
                sending.append(hook)
            else:
                rest.append(hook)
        return sending + later + rest

    def run(self, state):
        for hook in self.plan(state):
            hook.call(state)
            hook.calls += 1


HOOKS = Registry()
