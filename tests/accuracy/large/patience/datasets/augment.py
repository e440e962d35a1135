import torch


class Augment:
    """Random changes, each with a chance of its own. Every rank has its own random numbers."""

    def __init__(self, cfg, seed):
        self.flip = cfg.float("augment", "flip")
        self.shift = cfg.float("augment", "shift")
        self.erase = cfg.float("augment", "erase")
        self.brightness = cfg.float("augment", "brightness")
        self.generator = torch.Generator().manual_seed(seed)
        self.counts = dict.fromkeys(("flip", "shift", "erase", "brightness"), 0)

    def chance(self, share):
        return share > 0 and torch.rand((), generator=self.generator).item() < share

    def draw(self, low, high):
        return int(torch.randint(low, high, (), generator=self.generator))

    def __call__(self, image):
        if self.chance(self.flip):
            self.counts["flip"] += 1
            image = image.flip(-1 if self.draw(0, 2) else -2)
        if self.chance(self.shift):
            self.counts["shift"] += 1
            image = image.roll((self.draw(-1, 2), self.draw(-1, 2)), (-2, -1))
        if self.chance(self.erase):
            top, left = self.draw(0, image.shape[-2] - 2), self.draw(0, image.shape[-1] - 2)
            image = image.clone()
            image[..., top : top + 2, left : left + 2] = 0.0
            self.counts["erase"] += 1
        if self.chance(self.brightness):
            self.counts["brightness"] += 1
            image = image * (0.8 + 0.4 * torch.rand((), generator=self.generator).item())
        return image
