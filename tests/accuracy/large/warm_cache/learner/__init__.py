"""The classifier and how it learns."""
