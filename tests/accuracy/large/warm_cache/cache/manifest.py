"""The manifest of a folder: what is in it, and what it was made from."""

import json
import os

NAME = "manifest.json"
VERSION = 3


def write(folder, print_of, parts, header):
    """Written last and in one piece, so that a folder with a manifest is whole."""
    content = {
        "version": VERSION,
        "fingerprint": print_of,
        "parts": [{"name": part.name, "size": part.stat().st_size} for part in parts],
        "header": header,
    }
    draft = folder / (NAME + ".draft")
    with draft.open("w", encoding="utf-8") as file:
        json.dump(content, file, indent=1, sort_keys=True)
        file.flush()
        os.fsync(file.fileno())
    draft.replace(folder / NAME)


def read(folder):
    """The content, None where there is none that can be read."""
    path = folder / NAME
    if not path.is_file():
        return None
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    return content if isinstance(content, dict) and "parts" in content else None
