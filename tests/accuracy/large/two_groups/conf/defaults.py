"""The defaults, and presets that change some of them."""

DEFAULTS = {
    "seed": 4,
    "steps": 14,
    "groups": {"backend": "gloo", "expert_ways": 4},
    "net": {
        "vocab": 64,
        "width": 12,
        "experts": 4,
        "hidden": "${net.width}",
        "layers": 2,
        "router": "hash",
        "capacity": 1.5,
        "tie": True,
    },
    "corpus": {
        "vocab": "${net.vocab}",
        "length": 12,
        "batch": 4,
        "documents": 90,
        "mix": {"prose": 0.6, "code": 0.3, "tables": 0.1},
        "shortest": 5,
        "mask": 0.15,
    },
    "optim": {"name": "adam", "rate": 2e-3, "betas": [0.9, 0.98], "decay": 0.01, "warm": 3, "clip": 2.0, "skip": []},
    "hooks": {
        "use": ["experts", "dense", "clip", "norms", "routes", "clock"],
        "small_below": 4096,
        "ordered": False,
        "priorities": {},
        "every": {"norms": 2, "routes": 4},
    },
    "report": {"every": 4, "width": 72, "keep": 50},
    "probe": {"documents": 10, "topk": 3},
}

PRESETS = {
    "tiny": {"net": {"layers": 1, "width": 8}, "steps": 8},
    "wide": {"net": {"width": 24, "capacity": 2.0}, "optim": {"rate": 1e-3}},
    "plain": {"hooks": {"use": ["experts", "dense", "clip"]}},
}
