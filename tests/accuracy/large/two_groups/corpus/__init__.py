"""Documents, and batches of masked tokens."""

from corpus.stream import build_stream

__all__ = ["build_stream"]
