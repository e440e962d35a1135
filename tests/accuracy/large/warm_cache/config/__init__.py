"""Options of a run."""
