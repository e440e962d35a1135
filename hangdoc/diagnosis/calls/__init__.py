"""What the ranks called: histories of groups, their alignment, messages."""
