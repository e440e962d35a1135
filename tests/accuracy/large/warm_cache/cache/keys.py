"""Names in the store."""


def announcement(split):
    """The key under which the folder of a split is announced."""
    return "folder/" + split
