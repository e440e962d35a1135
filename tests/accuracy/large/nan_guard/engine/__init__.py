"""Training: loop, optimizer, schedule."""
