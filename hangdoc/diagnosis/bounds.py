"""How far the diagnosis looks, how much it tries, and how much it names: one number for each, wherever it does so."""

from __future__ import annotations

DEEPEST = 3
"""Calls that are followed into other functions, and definitions that a value is followed over."""
NAMED = 2
"""Conditions, lines or ranks of which each may be the one: who reads of more acts on none."""
LISTED = 3
"""Things that one list of a report has."""
TRIED = 16
"""Alternatives of which each is looked at by itself."""
COMPARED = 64
"""Ranks, calls or lists that are compared, each with each: four thousand pairs take milliseconds."""
SCANNED = 400
"""Lines, keys or events of one kind that are gone through, the newest ones."""
FEWEST = 2
"""Times that something was so before it counts as a habit, where nothing speaks against it."""
OFTEN = 3
"""The same, where it might be chance."""
