"""What the captured source says: conditions around a line, names, values, locks."""
