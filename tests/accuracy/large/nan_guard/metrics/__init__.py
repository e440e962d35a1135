"""Errors, meters, and their exchange between ranks."""
