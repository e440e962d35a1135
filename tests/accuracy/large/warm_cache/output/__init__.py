"""What stays after a run."""
