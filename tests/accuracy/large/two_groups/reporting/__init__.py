"""Words and numbers for people."""

from reporting.ledger import Ledger, say

__all__ = ["Ledger", "say"]
