"""Which rows a rank sees, and when."""
