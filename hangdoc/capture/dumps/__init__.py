"""A folder of flight-recorder dumps: its files found, read in worker processes, folded, and made the ranks of a run."""
