"""What is known of the operations of torch.distributed: the reader of ``operations.toml``."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

from hangdoc.model.tables import table


@dataclass(frozen=True, slots=True)
class Operation:
    """What its name says of an operation; the defaults hold for an unknown one."""

    sized: bool = True
    """True if all ranks must agree on the sizes."""
    rooted: bool = False
    """True if a member returns as soon as its own part is done."""
    message: str = ""
    """'send' or 'recv' where one rank passes something to another."""
    exchange: bool = False
    """True if each rank names what it sends every other one, and what it expects from it."""
    explicit: bool = True
    """False for one that the library calls, not its user."""
    numbered: bool = True
    """False if the group does not count it among its calls."""


@lru_cache(maxsize=1)
def _known() -> dict[str, Operation]:
    entries = table("hangdoc.model", "operations")["operation"]
    return {
        name: Operation(
            entry.get("sized", True),
            entry.get("rooted", False),
            entry.get("message", ""),
            entry.get("exchange", False),
            entry.get("explicit", True),
            entry.get("numbered", True),
        )
        for entry in entries
        for name in entry["names"]
    }


@lru_cache(maxsize=1024)
def operation(name: str) -> Operation:
    """What is known of an operation: by its name, else by how that begins, else by what it contains.

    Examples: 'all_gather_into_tensor_coalesced' begins with 'all_gather_into_tensor' and is sized as that is;
    '_broadcast_oop' contains 'broadcast' and is rooted. Words in place of a name ('DDP forward broadcasting …') tell
    by their beginning alone.
    """
    known = _known()
    fits = [each for each in known if name.startswith(each)]
    if not fits and " " not in name:
        fits = [each for each in known if each in name]
    return known[max(fits, key=len)] if fits else Operation()


def is_explicit(function: str) -> bool:
    """True if a call of this function asks for communication by its name."""
    found = _known().get(function)
    return found is not None and found.explicit


def message_way(name: str) -> str:
    """'send' or 'recv' for an operation that passes a message, else ''."""
    return operation(name).message


def is_met_by_all(name: str) -> bool:
    """True if the operation ends on no rank before every rank has begun it: 'barrier', 'all_reduce', not 'send'."""
    found = operation(name)
    return name in _known() and not found.rooted and not found.message


@lru_cache(maxsize=1)
def names_met_by_all() -> tuple[str, ...]:
    """The functions that a user calls for such an operation."""
    return tuple(name for name, found in _known().items() if found.explicit and is_met_by_all(name))
