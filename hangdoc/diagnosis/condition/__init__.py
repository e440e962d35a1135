"""Which condition the ranks took differently."""
