class Registry:
    """Names to classes, for what an experiment picks by name."""

    def __init__(self, what):
        self.what = what
        self._entries = {}

    def register(self, name=None):
        def add(cls):
            key = name or cls.__name__.lower()
            if key in self._entries:
                raise KeyError(f"{self.what} {key} is registered twice")
            self._entries[key] = cls
            return cls

        return add

    def build(self, name, *args, **kwargs):
        if name not in self._entries:
            close = [known for known in self._entries if known[:2] == name[:2]]
            hint = f"; did you mean {close[0]}?" if close else ""
            raise KeyError(f"no {self.what} is called {name}{hint}")
        return self._entries[name](*args, **kwargs)

    def __contains__(self, name):
        return name in self._entries
