"""What the ranks do now, and who waits for whom."""
