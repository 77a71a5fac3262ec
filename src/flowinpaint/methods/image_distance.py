"""Distance between pixels in space and colour, the metric of AMLE and Laplace–Beltrami."""

from __future__ import annotations

from torch import Tensor

from flowinpaint.errors import InputError


def image_distance(colour_squared: Tensor, length_squared: Tensor | float, lam: float, distance: int) -> Tensor:
    """Distance between pixels x and y with colours I (Raad et al., IPOL 2020), elementwise.

    colour_squared: ‖I(x) - I(y)‖², the mean over the colour channels of the squared difference, on the caller's scale.
    length_squared: ‖x - y‖² in pixels. lam: λ, the weight of the length.

    distance 1: √((1-λ)‖I(x) - I(y)‖² + λ‖x - y‖²), the geodesic one
    distance 2: (1-λ)‖I(x) - I(y)‖ + λ‖x - y‖
    distance 3: (1-λ)‖I(x) - I(y)‖² + λ‖x - y‖²
    """
    if not 1e-12 <= lam <= 1:
        raise InputError(f"lam must be from 1e-12 to 1, got {lam}.")
    if distance not in (1, 2, 3):
        raise InputError(f"distance must be 1, 2 or 3, got {distance}.")
    if distance == 2:
        return (1 - lam) * colour_squared.sqrt() + lam * length_squared**0.5
    squared = (1 - lam) * colour_squared + lam * length_squared
    return squared.sqrt() if distance == 1 else squared
