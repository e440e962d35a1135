import torch
from torch import nn

from utils.registry import Registry

MODELS = Registry("model")


class Residual(nn.Module):
    def __init__(self, channels, dropout):
        super().__init__()
        self.norm = nn.GroupNorm(2, channels)
        self.conv = nn.Conv2d(channels, channels, 3, padding=1)
        self.dropout = nn.Dropout2d(dropout) if dropout else None

    def forward(self, x):
        y = self.conv(torch.relu(self.norm(x)))
        if self.dropout is not None and self.training:
            y = self.dropout(y)
        return x + y


@MODELS.register("convnet")
class ConvNet(nn.Module):
    def __init__(self, cfg):
        super().__init__()
        channels = cfg.int("model", "channels")
        if channels % 2:
            raise ValueError("channels must be even: the norm has two groups")
        dropout = cfg.float("model", "dropout", 0.0)
        self.stem = nn.Conv2d(1, channels, 3, padding=1)
        self.body = nn.Sequential(*(Residual(channels, dropout) for _ in range(cfg.int("model", "blocks"))))
        self.head = nn.Linear(2 * channels, cfg.int("sites", "classes"))

    def forward(self, images):
        x = self.body(self.stem(images))
        pooled = torch.cat([x.mean((-2, -1)), x.amax((-2, -1))], dim=1)
        return self.head(pooled)


@MODELS.register("perceptron")
class Perceptron(nn.Module):
    def __init__(self, cfg):
        super().__init__()
        size, width = cfg.int("sites", "size"), 4 * cfg.int("model", "channels")
        layers = [nn.Flatten(), nn.Linear(size * size, width), nn.ReLU()]
        for _ in range(cfg.int("model", "blocks") - 1):
            layers += [nn.Linear(width, width), nn.ReLU()]
        self.layers = nn.Sequential(*layers, nn.Linear(width, cfg.int("sites", "classes")))

    def forward(self, images):
        return self.layers(images)
