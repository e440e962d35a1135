import torch


class Loader:
    """Batches of images and labels, in the order that the sampler gives."""

    def __init__(self, images, labels, sampler, augment=None):
        self.images = images
        self.labels = labels
        self.sampler = sampler
        self.augment = augment

    def __len__(self):
        return len(self.sampler)

    def __iter__(self):
        for indices in self.sampler:
            rows = []
            for index in indices:
                image = self.images[index]
                rows.append(self.augment(image) if self.augment is not None else image)
            yield torch.stack(rows), torch.tensor([self.labels[index] for index in indices])
