"""Which shards there are, where they lie, and who reads them."""

import random
import zlib


def manifest(data, world):
    """A list of dicts, the same on all ranks."""
    chance = random.Random(data["shards"] * 100 + world)
    entries = []
    for number in range(data["shards"] * world):
        owner, turn = number % world, number // world
        if owner in archived(world) and turn >= 3:
            tier = "cold"
        elif (owner + turn) % 4 == 3:
            tier = "near"
        else:
            tier = "hot"
        surplus = chance.randrange(5) if turn % 2 else 0
        name = f"glyphs-{number:04d}"
        entries.append({"name": name, "tier": tier, "turn": turn, "size": data["per_shard"] + surplus})
    return entries


def archived(world):
    """Owners whose later shards were moved to the archive last month."""
    return {index for index in range(world) if index % 3 == 2 and index < world - 1}


def assign(entries, me):
    mine = [entry for number, entry in enumerate(entries) if number % me.world == me.rank]
    for entry in mine:
        # Some shards were written by the old tool, with the axes swapped.
        entry["swapped"] = zlib.crc32(entry["name"].encode()) % 5 == 0
    if not mine:
        raise RuntimeError(f"nothing to read for rank {me.rank}")
    return sorted(mine, key=lambda entry: entry["turn"])
