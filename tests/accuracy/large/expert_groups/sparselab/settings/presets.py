"""Named sets of options. A preset may build on another."""

BASE = {
    "seed": 5,
    "experts": 4,
    "replicas": 4,
    "vocabulary": 64,
    "width": 12,
    "blocks": 2,
    "adapter_width": 8,
    "context": 12,
    "batch": 6,
    "steps": 24,
    "rate": 0.2,
    "expert_rate": None,
    "warmup": 4,
    "decay": "cosine",
    "clip": 1.0,
    "route_floor": 0.02,
    "capacity": 0.6,
    "fill_gradients": False,
    "noise": 0.05,
    "mask_share": 0.1,
    "window": 6,
    "log_every": 5,
    "balance_every": 4,
    "evaluate_every": 8,
    "save_every": 8,
    "held_out": 3,
    "keep": 2,
    "folder": "",
    "freeze_embedding": False,
    "tied": True,
    "patience": 10,
}

PRESETS = {
    "tiny": {},
    "short": {"steps": 9, "evaluate_every": 4, "save_every": 0},
    "wide": {"parent": "tiny", "width": 24, "adapter_width": 16, "rate": 0.01},
    "frozen": {"parent": "wide", "freeze_embedding": True, "tied": False},
}


def resolve(name, seen=()):
    """The options of a preset, those of its parents included."""
    if name in seen:
        raise SystemExit(f"preset {name} is its own ancestor: {' -> '.join(seen)}")
    if name not in PRESETS:
        raise SystemExit(f"no preset {name}; there are {', '.join(sorted(PRESETS))}")
    own = dict(PRESETS[name])
    parent = own.pop("parent", None)
    inherited = dict(BASE) if parent is None else resolve(parent, (*seen, name))
    unknown = own.keys() - BASE.keys()
    if unknown:
        raise SystemExit(f"preset {name} sets what does not exist: {', '.join(sorted(unknown))}")
    return {**inherited, **own}
