"""What is done to a glyph before the network sees it. Every rank draws for itself."""

import torch


def disturb(pictures, data, draw):
    """[n, side, side] clean to (clean, noisy)."""
    n, side, _ = pictures.shape
    clean = pictures.clone()
    for index in range(n):
        if data["shift"] and draw.random() < 0.5:
            clean[index] = torch.roll(clean[index], draw.choice((-1, 1)), draw.randrange(2))
        if draw.random() < data["flip"]:
            clean[index] = clean[index].flip(draw.randrange(2))
    noisy = clean + data["noise"] * torch.randn_like(clean)
    for index in range(n):
        if draw.random() >= data["erase"]:
            continue
        height = draw.randint(1, 2)
        top = draw.randrange(side - height)
        if float(clean[index, top : top + height].sum()) < 0.8 * float(clean[index].sum()):
            noisy[index, top : top + height] = 0.0
    return clean, noisy.clamp(-1, 2)
