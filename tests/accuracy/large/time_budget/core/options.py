"""Options: one nested dict, changed by files and words such as `data.batch=4`."""

import copy
import json
import os

DEFAULTS = {
    "seed": 11,
    "steps": 24,
    "expect": 0.0,
    "timeout_minutes": 30,
    "data": {
        "batch": 6,
        "side": 8,
        "kinds": 4,
        "shards": 6,
        "per_shard": 18,
        "noise": 0.25,
        "shift": True,
        "flip": 0.2,
        "erase": 0.15,
        "hold": 2,
        "tiers": {"hot": 0.0, "near": 0.12, "cold": 1.5},
    },
    "net": {"width": 24, "depth": 2, "act": "gelu", "norm": True, "drop": 0.0},
    "optim": {"lr": 0.01, "beta": 0.9, "decay": 0.0005, "warm": 4, "floor": 0.1, "clip": 2.0, "centre": False},
    "loss": {"clean": 0.5, "smooth": 0.05, "focus": 1.0, "hard": 0.5},
    "reduce": {"bucket": 900, "half": False},
    "average": {"on": True, "decay": 0.9, "after": 3},
    "eval": {"every": 6, "batches": 2, "allowance": 1.0, "use_average": True},
    "keep": {"every": 8, "number": 2, "folder": ""},
    "log": {"level": "info", "every": 6, "others": False},
}


class BadOption(SystemExit):
    """Ends the program with a sentence."""


def load(argv):
    cfg = copy.deepcopy(DEFAULTS)
    for word in argv:
        if word.endswith(".json"):
            with open(word, encoding="utf-8") as file:
                merge(cfg, json.load(file), word)
        elif "=" in word:
            path, _, text = word.partition("=")
            put(cfg, path.split("."), text)
        else:
            raise BadOption(f"neither a file nor a change: {word}")
    if os.environ.get("FIXED") == "1":
        cfg["eval"]["allowance"] = None
    return checked(cfg)


def merge(into, new, where):
    for key, value in new.items():
        if key not in into:
            raise BadOption(f"{where}: unknown option {key}")
        if isinstance(into[key], dict) and isinstance(value, dict):
            merge(into[key], value, f"{where}, {key}")
        elif isinstance(into[key], dict) or isinstance(value, dict):
            raise BadOption(f"{where}: {key} is a section in one place and a value in the other")
        else:
            into[key] = value


def put(cfg, path, text):
    *sections, last = path
    for section in sections:
        cfg = cfg.get(section)
        if not isinstance(cfg, dict):
            raise BadOption(f"no section {section}")
    if last not in cfg:
        raise BadOption(f"no option {'.'.join(path)}")
    try:
        cfg[last] = json.loads(text)
    except ValueError:
        cfg[last] = text


def checked(cfg):
    data, ev = cfg["data"], cfg["eval"]
    if data["side"] < 6 or data["side"] % 2:
        raise BadOption("a glyph has an even side of at least 6")
    if not 2 <= data["kinds"] <= 6:
        raise BadOption("there are two to six kinds of glyphs")
    if data["per_shard"] < data["batch"]:
        raise BadOption("a shard holds at least one batch")
    if ev["every"] and ev["batches"] < 1:
        raise BadOption("an evaluation needs batches")
    if ev["use_average"] and not cfg["average"]["on"]:
        ev["use_average"] = False
    bad = [name for name in ("noise", "flip", "erase") if not 0 <= data[name] < 1]
    if bad:
        raise BadOption(f"a share from 0 to 1: {', '.join(bad)}")
    return cfg
