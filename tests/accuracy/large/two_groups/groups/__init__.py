"""Process groups: the world, and the ranks that share experts."""

from groups.mesh import Groups, close_groups, open_groups

__all__ = ["Groups", "close_groups", "open_groups"]
