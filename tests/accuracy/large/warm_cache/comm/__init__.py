"""Ranks, store and sums."""
