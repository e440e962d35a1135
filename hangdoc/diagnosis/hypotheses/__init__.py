"""Who: sets of ranks that may be to blame, what speaks for each, and which of them is the likeliest."""
