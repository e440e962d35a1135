from utils.registry import Registry

HOOKS = Registry("hook")


class Hook:
    """Methods that the trainer calls where they exist: before_fit, before_epoch, before_step, after_backward,
    after_step, after_epoch, after_fit."""

    order = 50

    def __init__(self, cfg):
        self.cfg = cfg
