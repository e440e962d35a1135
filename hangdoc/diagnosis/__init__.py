"""Pure: a snapshot of the job in, a diagnosis out. No I/O beyond reading hangdoc's own data files."""

from hangdoc.diagnosis.verdict import diagnose

__all__ = ["diagnose"]
