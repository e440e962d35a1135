"""Sparse language models, small enough to look at."""
