"""What the net has learned, on documents that nobody trained on."""

from probing.probe import probe

__all__ = ["probe"]
