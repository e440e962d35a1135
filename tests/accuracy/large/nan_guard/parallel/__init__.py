"""The ranks: who they are and how they average."""
