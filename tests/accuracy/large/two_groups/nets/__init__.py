"""The net: embeddings, layers of experts, and a head."""

from nets.mixture import build_net

__all__ = ["build_net"]
