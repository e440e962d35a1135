"""Pictures in packs on disk."""
