import torch


def split_decay(model):
    decay, plain = [], []
    for name, parameter in model.named_parameters():
        if not parameter.requires_grad:
            continue
        (plain if parameter.ndim == 1 or name.endswith("bias") else decay).append(parameter)
    return decay, plain


def build_optimizer(cfg, model):
    decay, plain = split_decay(model)
    groups = [
        {"params": decay, "weight_decay": cfg.float("optim", "weight_decay", 0.0)},
        {"params": plain, "weight_decay": 0.0},
    ]
    kind, lr = cfg.get("optim", "kind", "sgd"), cfg.float("optim", "lr")
    if kind == "sgd":
        return torch.optim.SGD(groups, lr=lr, momentum=cfg.float("optim", "momentum", 0.0))
    if kind == "adamw":
        return torch.optim.AdamW(groups, lr=lr)
    raise ValueError(f"no optimizer is called {kind}")


class StepSchedule:
    def __init__(self, optimizer, milestones, gamma):
        self.optimizer = optimizer
        self.milestones = set(milestones)
        self.gamma = gamma

    def after(self, epoch):
        if epoch + 1 not in self.milestones:
            return False
        for group in self.optimizer.param_groups:
            group["lr"] *= self.gamma
        return True


class NoSchedule:
    def after(self, epoch):
        return False


def build_schedule(cfg, optimizer):
    if cfg.get("optim", "schedule", "none") == "step":
        return StepSchedule(optimizer, cfg.ints("optim", "milestones"), cfg.float("optim", "gamma"))
    return NoSchedule()
