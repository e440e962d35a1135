"""Ranks and reductions."""
