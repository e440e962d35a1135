"""From records to batches, ahead of need."""
