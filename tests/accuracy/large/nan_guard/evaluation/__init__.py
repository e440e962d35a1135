"""Validation, and the forecast that a model has to beat."""
