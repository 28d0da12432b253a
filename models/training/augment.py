"""Training images made anew: moved by a few pixels."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F


def shifted(images: Tensor, by: int) -> Tensor:
    """Move each image by up to `by` pixels in both directions, zeros coming in at the edges.

    Shapes: (batch, channels, height, width) -> the same. Draws from PyTorch's generator of the CPU.
    """
    batch, _, height, width = images.shape
    padded = F.pad(images, (by, by, by, by))
    top, left = torch.randint(0, 2 * by + 1, (2, batch)).to(images.device)
    rows = top[:, None] + torch.arange(height, device=images.device)
    columns = left[:, None] + torch.arange(width, device=images.device)
    which = torch.arange(batch, device=images.device)
    moved = padded[which[:, None, None], :, rows[:, :, None], columns[:, None, :]]
    return moved.permute(0, 3, 1, 2).contiguous()
