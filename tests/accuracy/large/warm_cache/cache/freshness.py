"""May a folder be used as it is?"""

import logging

from cache import manifest

log = logging.getLogger("tickets.cache")


def is_warm(folder, print_of):
    """True where the folder holds a whole table of that fingerprint, written by this version."""
    content = manifest.read(folder)
    if content is None:
        return False
    if content.get("version") != manifest.VERSION:
        log.info("%s was written by version %s", folder.name, content.get("version"))
        return False
    if content["fingerprint"] != print_of:
        return False
    for part in content["parts"]:
        path = folder / part["name"]
        if not path.is_file() or path.stat().st_size != part["size"]:
            log.warning("%s is broken: %s", folder.name, part["name"])
            return False
    return True


def others(root, wanted):
    """Folders of the cache that no recipe of this run wants, the oldest first."""
    if not root.is_dir():
        return []
    found = [each for each in root.iterdir() if each.is_dir() and each.name not in wanted]
    return sorted(found, key=lambda each: each.stat().st_mtime)
