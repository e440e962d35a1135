"""How much a rank may read from the shared file system."""

from __future__ import annotations

from settings.model import QuotaSettings, Unit


class Quota:
    """Counts what was read against an allowance."""

    def __init__(self, unit: Unit, allowance: int):
        self.unit = unit
        self.allowance = allowance
        self.spent = 0
        self.half_told = False

    @classmethod
    def of(cls, settings: QuotaSettings) -> Quota:
        """As the settings have it."""
        match settings.unit:
            case Unit.BYTES:
                return cls(settings.unit, settings.bytes)
            case Unit.RECORDS:
                return cls(settings.unit, settings.records)

    @property
    def share(self) -> float:
        """Of the allowance, what is spent."""
        return self.spent / self.allowance if self.allowance else 1.0

    def admit(self, size: int) -> bool:
        """Count a record of so many bytes; False, and not counted, where it would be too much."""
        cost = size if self.unit is Unit.BYTES else 1
        if self.spent + cost > self.allowance:
            return False
        self.spent += cost
        return True

    def passed_half(self) -> bool:
        """True once, when half of it is spent."""
        if self.half_told or self.share < 0.5:
            return False
        self.half_told = True
        return True
