"""Stations and their measurements, up to batches."""
