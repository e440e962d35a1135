"""Judging on pictures that nobody trained on."""
