"""A recipe, and the digest that names its table."""

import hashlib
import json
from collections import namedtuple

Recipe = namedtuple("Recipe", "split source tickets first noise features shared")

# What changes the speed of a run or the look of its output, and no table.
_NO_MATTER = ("longest_line", "progress", "workers")


def recipe_of(opts, split):
    values = opts["splits"][split]
    features = {name: value for name, value in opts["features"].items() if name not in _NO_MATTER}
    shared = bool(opts["cache"]["shared"])
    return Recipe(split, values["source"], values["tickets"], values["first"], values["noise"], features, shared)


def plain(value):
    """The same for equal values: lists for tuples, sorted tables, no 1.0 beside 1."""
    if isinstance(value, dict):
        return {str(name): plain(each) for name, each in sorted(value.items())}
    if isinstance(value, (list, tuple)):
        return [plain(each) for each in value]
    if isinstance(value, float) and value.is_integer():
        return int(value)
    return value


def fingerprint(recipe):
    """Hexadecimal digest of what the table depends on."""
    parts = recipe._asdict()
    shared = parts.pop("shared")
    if shared:
        parts.pop("split")
    return hashlib.sha256(json.dumps(plain(parts), sort_keys=True).encode()).hexdigest()
