"""A journal of the run."""
