from hooks import checkpoint, stopping, watching, writing  # noqa: F401  (each registers its hooks)
