"""What may look at a step, and what may stop it."""
