"""Augmentation: random changes of training images that keep their class.

A network that saw every image in one place, size and thickness reads drawings badly. All functions take and
return images of shape (batch, channels, height, width), and draw from PyTorch's CPU generator.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F

from turnpike.models.training.recipe import Recipe


def augment(images: Tensor, recipe: Recipe) -> Tensor:
    """Move, distort and thicken images at random, as the recipe says."""
    if recipe.shift:
        images = random_shift(images, recipe.shift)
    if recipe.distort:
        images = random_distortion(images, recipe.distort)
    if recipe.thickness:
        images = random_thickness(images, recipe.thickness)
    return images


def random_shift(images: Tensor, pixels: int) -> Tensor:
    """Move each image by up to `pixels` in both directions and fill with zeros at the edges.

    Draws from PyTorch's CPU generator. Shapes: (batch, channels, height, width) -> the same.
    """
    batch, _, height, width = images.shape
    padded = F.pad(images, (pixels, pixels, pixels, pixels))
    top, left = torch.randint(0, 2 * pixels + 1, (2, batch)).to(images.device)
    rows = top[:, None] + torch.arange(height, device=images.device)
    columns = left[:, None] + torch.arange(width, device=images.device)
    image = torch.arange(batch, device=images.device)
    shifted = padded[image[:, None, None], :, rows[:, :, None], columns[:, None, :]]
    return shifted.permute(0, 3, 1, 2).contiguous()


def random_distortion(images: Tensor, amount: float) -> Tensor:
    """Rotate, shear, widen and heighten each image around its centre, and fill with zeros at the edges.

    Args:
        images: Images whose background is 0.
        amount: Upper bound of the shear and of the change of width. Rotation (in radians) has 0.7 times
            this bound and the change of height half of it, because digits vary less in these.
    """
    angle, shear, wider, higher = amount * _random_signed(4, len(images))
    angle, across, down = 0.7 * angle, 1 + wider, 1 + higher / 2
    cos, sin = angle.cos(), angle.sin()
    nothing = torch.zeros_like(angle)
    # where each pixel of the result comes from
    origins = torch.stack(
        [
            torch.stack([cos * across, (shear - sin) * down, nothing], 1),
            torch.stack([sin * across, cos * down, nothing], 1),
        ],
        1,
    ).to(images)
    grid = F.affine_grid(origins, list(images.shape), align_corners=False)
    return F.grid_sample(images, grid, align_corners=False)


def random_thickness(images: Tensor, amount: float) -> Tensor:
    """Make the lines of each image thicker or thinner, by raising values to a power around 1.

    Args:
        images: Images whose background is 0; the values furthest from 0 stay as they are.
        amount: The powers are between e^-amount and e^amount.
    """
    powers = (amount * _random_signed(len(images))).exp().to(images)[:, None, None, None]
    peaks = images.abs().amax((1, 2, 3), keepdim=True).clamp(min=torch.finfo(images.dtype).tiny)
    return images.sign() * peaks * (images.abs() / peaks) ** powers


def _random_signed(*shape: int) -> Tensor:
    """Return random numbers from -1 to 1."""
    return 2 * torch.rand(shape) - 1
