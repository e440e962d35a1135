"""Who is to blame, by which story, and how sure that is."""
