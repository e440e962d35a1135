"""Sends and receives that do not match."""
