import math
import random

import torch

import hooks
from datasets.augment import Augment
from datasets.loader import Loader
from datasets.site import CachedImages, Site
from engine.optim import build_optimizer, build_schedule
from engine.trainer import Trainer
from evals.validation import Validator
from hooks.base import HOOKS
from models.nets import MODELS
from parallel import comm
from parallel.averaging import GradientAverager
from samplers.batches import SAMPLERS, InOrder


def site_of(cfg, part, rank):
    names = cfg.words("sites", "names")
    counts = cfg.ints("sites", part)
    if len(names) != len(counts):
        raise ValueError(f"{len(names)} sites and {len(counts)} counts for {part}")
    name = names[rank % len(names)]
    wrong = cfg.float("sites", "noise", 0.0) if name in cfg.words("sites", "noisy") and part == "valid" else 0.0
    size, classes = cfg.int("sites", "size"), cfg.int("sites", "classes")
    return Site(name, part, counts[rank % len(names)], size, classes, cfg.int("run", "seed"), wrong)


def build_loaders(cfg, rank):
    train, valid = site_of(cfg, "train", rank), site_of(cfg, "valid", rank)
    batch, seed = cfg.int("sampler", "batch"), cfg.int("run", "seed")
    steps = math.ceil(max(cfg.ints("sites", "train")) / batch)
    sampler = SAMPLERS.build(cfg.get("sampler", "kind"), train, batch, steps, seed + rank)
    # Hosts with an odd number share their memory with the storage service.
    budget = len(train) if rank % 2 == 0 else len(train) // 3
    augmented = Loader(CachedImages(train, budget), train.labels, sampler, Augment(cfg, seed + rank))
    plain = Loader(CachedImages(valid, len(valid)), valid.labels, InOrder(valid, 2 * batch))
    return augmented, plain


def build_trainer(cfg):
    seed = cfg.int("run", "seed")
    random.seed(seed + comm.rank())
    torch.manual_seed(seed)
    model = MODELS.build(cfg.get("model", "kind"), cfg)
    comm.broadcast_module(model)
    optimizer = build_optimizer(cfg, model)
    trainer = Trainer(
        model,
        optimizer,
        build_schedule(cfg, optimizer),
        GradientAverager(model, 1024 * cfg.int("optim", "bucket_kb")),
        build_loaders(cfg, comm.rank()),
        Validator(cfg.int("sites", "classes"), cfg.sync_losses),
        cfg.int("run", "max_epochs"),
    )
    for name in cfg.words("hooks", "use"):
        if name not in HOOKS:
            raise ValueError(f"no hook is called {name}; there are those of {hooks.__name__}")
        trainer.add(HOOKS.build(name, cfg))
    return trainer
