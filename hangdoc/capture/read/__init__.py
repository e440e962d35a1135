"""One module for each source of facts about a process."""
