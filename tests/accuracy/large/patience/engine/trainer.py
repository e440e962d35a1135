import logging

import torch
from torch.nn import functional

from engine.state import State
from parallel import comm
from utils.meters import Meter

log = logging.getLogger("trainer")


class Trainer:
    def __init__(self, model, optimizer, schedule, averager, loaders, validator, max_epochs):
        self.model = model
        self.optimizer = optimizer
        self.schedule = schedule
        self.averager = averager
        self.train_loader, self.valid_loader = loaders
        self.validator = validator
        self.max_epochs = max_epochs
        self.state = State()
        self.hooks = []
        self.should_stop = False
        self.train_loss = Meter()

    def add(self, hook):
        self.hooks.append(hook)
        self.hooks.sort(key=lambda each: each.order)

    def call(self, name, *args):
        for hook in self.hooks:
            method = getattr(hook, name, None)
            if method is not None:
                method(self, *args)

    def request_stop(self, reason):
        if not self.should_stop:
            self.state.reasons.append(reason)
        self.should_stop = True

    def fit(self):
        self.call("before_fit")
        while self.state.epoch < self.max_epochs and not self.should_stop:
            self.train_epoch()
            metrics = self.validator(self.model, self.valid_loader)
            metrics["train_loss"] = self.train_loss.mean
            self.state.history.append(metrics)
            lowered = self.schedule.after(self.state.epoch)
            if lowered and comm.is_main():
                log.info("learning rate lowered after epoch %d", self.state.epoch)
            self.call("after_epoch", metrics)
            self.state.epoch += 1
        self.call("after_fit")

    def train_epoch(self):
        self.model.train()
        self.train_loss.reset()
        self.train_loader.sampler.epoch = self.state.epoch
        self.call("before_epoch")
        for images, labels in self.train_loader:
            self.call("before_step")
            loss = self.train_step(images, labels)
            self.train_loss.update(loss, len(labels))
            self.state.step += 1
            self.call("after_step", loss)

    def train_step(self, images, labels):
        self.optimizer.zero_grad(set_to_none=True)
        loss = functional.cross_entropy(self.model(images), labels)
        loss.backward()
        self.call("after_backward")
        self.averager()
        self.optimizer.step()
        return loss.item()

    @torch.no_grad()
    def predict(self, images):
        was_training = self.model.training
        self.model.eval()
        scores = self.model(images)
        if was_training:
            self.model.train()
        return scores
