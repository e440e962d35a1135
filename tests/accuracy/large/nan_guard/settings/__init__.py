"""What a run may be told, and how it is read."""
