"""Tickets, features, tables."""
