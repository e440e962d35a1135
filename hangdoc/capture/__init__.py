"""Facts about a job from outside, one module per origin; ``host.capture_job`` collects them all at once."""
