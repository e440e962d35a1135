"""Tables that were made once, on disk."""
