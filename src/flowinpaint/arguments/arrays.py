"""Arrays in the forms that users hold: torch tensors, masked arrays, PIL images, xarray DataArrays, lists.

`adopt` converts the arguments of `inpaint` to numpy. `Kind` remembers the type and layout of the flow, and converts
results back. The optional libraries are recognised by the module of a type and never imported here, except to convert.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from os import PathLike
from typing import Any, Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from flowinpaint.errors import InputError, warn_user

Array = npt.NDArray[Any]
Layout = Literal["HW", "HWC", "CHW", "BCHW"]
"""Axes of the caller's flow: height, width, channels, and a batch of one."""

_COLOURS = (1, 3, 4)
_MOST_COMPONENTS = 4
"""A table (N, 2) is a list of points, not a field two pixels wide."""
_GREY = ("1", "L", "I", "F", "I;16", "I;16B", "I;16L", "I;16N")
"""Modes of PIL images whose pixels are single numbers; all others are converted to RGB."""


@dataclass(frozen=True)
class Kind:
    """Type and layout of the caller's flow; call it with a numpy array (H, W, C) or (H, W) to get the same kind.

    device: of a torch tensor. template: an xarray DataArray with the dimensions and coordinates of the flow.
    """

    layout: Layout = "HWC"
    device: Any = None
    template: Any = None

    def __call__(self, array: Array) -> Any:
        """A field (H, W, C) or a map (H, W) in the caller's type and layout; a map has one channel if C comes first."""
        is_map = array.ndim == 2
        if self.layout == "HW":
            array = array if is_map else array[..., 0]
        elif self.layout != "HWC":
            array = array[None] if is_map else np.moveaxis(array, -1, 0)
            array = array[None] if self.layout == "BCHW" else array
        if self.device is not None:
            import torch

            return torch.from_numpy(np.array(array, order="C")).to(self.device)
        if self.template is None:
            return array
        if not is_map:
            return self.template.copy(data=array)
        one = self.template
        if self.layout != "HW":
            one = one.isel({one.dims[2 if self.layout == "HWC" else 0]: 0}, drop=True)
        return one.copy(data=array.reshape(one.shape)).rename(None).drop_attrs()


class Adopted(NamedTuple):
    """Arguments of `inpaint` as numpy arrays.

    image: (H, W, ·) of any type, or None. flow: (H, W, C). mask, image_where: (H, W), or None.
    """

    image: Array | None
    flow: Array
    mask: Array | None
    image_where: Array | None
    kind: Kind


def adopt(image: object, flow: object, mask: object, image_where: object) -> Adopted:
    """Convert the arguments to numpy; InputError if one of them is no array, or the flow has no usable shape."""
    if _is_xarray(image) and _is_xarray(flow):
        shared = [d for d in flow.dims if d in image.dims]  # type: ignore[attr-defined]
        image = image.transpose(*shared, ...)  # type: ignore[attr-defined]
        _check_coordinates(image, flow, shared)
    if getattr(flow, "requires_grad", False):
        warn_user("flow requires gradients, but inpaint returns none; for gradients use fi.load_model.")
    picture, valid = (None, None) if image is None else image_of(image)
    field = to_numpy("flow", flow, "(H, W, C)")
    layout = _layout_of(field, None if picture is None else picture.shape[:2], _is_torch(flow), _is_xarray(flow))
    where = None if image_where is None else map_of("image_where", image_where)
    if valid is not None:
        where = valid if where is None else valid & where
    kind = Kind(
        layout,
        flow.device if _is_torch(flow) else None,  # type: ignore[attr-defined]
        flow if _is_xarray(flow) else None,
    )
    return Adopted(picture, _channels_last(field, layout), None if mask is None else map_of("mask", mask), where, kind)


def _check_coordinates(image: Any, flow: Any, dims: list[Any]) -> None:
    """Raise InputError if two DataArrays have different coordinates along the dimensions that they share."""
    for d in (d for d in dims if d in image.coords and d in flow.coords and image.sizes[d] == flow.sizes[d]):
        if not np.array_equal(image.coords[d].values, flow.coords[d].values):
            raise InputError(f"image must have the coordinates of flow along {d!r}, got others; align them first")


def image_of(image: object, name: str = "image") -> tuple[Array, Array | None]:
    """An image as an array (H, W), (H, W, ·) or (·, H, W), without alpha; and where it is valid, (H, W) or None.

    A masked array is valid where it is not masked in any channel.
    """
    if _is_pil(image):
        mode = image.mode  # type: ignore[attr-defined]
        array = plain(np.asarray(image if mode in _GREY else image.convert("RGB")))  # type: ignore[attr-defined]
        if array.dtype == np.int32 and array.size and array.min() >= 0 and array.max() < 2**16:
            array = array.astype(np.uint16)  # PIL's mode for some 16-bit files
        return (array * np.uint8(255) if array.dtype == np.bool_ else array), None
    array = to_numpy(name, image, "(H, W, 3) or (H, W)", fill=False)
    if (
        isinstance(image, list | tuple)
        and array.size
        and 1 < array.max() < 256
        and (array == array.astype(np.uint8)).all()
    ):
        array = array.astype(np.uint8)  # a nested list of integers
    valid = None
    if isinstance(image, np.ma.MaskedArray) and np.ma.is_masked(image):
        masked = np.ma.getmaskarray(image)
        valid = np.asarray(~(masked.any(axis=2) if masked.ndim == 3 else masked))
    batch = array.ndim == 4 and len(array) == 1 and _is_torch(image)
    array = array[0] if batch else array
    named = _is_torch(image) or _is_xarray(image)
    # A tensor of three axes and both ends like channels, a few pixels wide or high, counts as (H, W, ·).
    if named and array.ndim == 3 and array.shape[0] in _COLOURS and (batch or array.shape[2] not in _COLOURS):
        array = np.moveaxis(array, 0, -1)
    if array.ndim == 3 and array.shape[2] in (2, 4):
        array = array[..., : array.shape[2] - 1]
    return array, valid


def field_of(name: str, value: object) -> Array:
    """A field as an array (H, W, C): of any type, tensors and DataArrays also with channels first, or (H, W)."""
    field = to_numpy(name, value, "(H, W, C)")
    layout = _layout_of(field, None, _is_torch(value), _is_xarray(value), name)
    return _channels_last(field, layout)


def _channels_last(field: Array, layout: Layout) -> Array:
    """A field of a layout as (H, W, C)."""
    field = field[0] if layout == "BCHW" else field[..., None] if layout == "HW" else field
    return np.moveaxis(field, 0, -1) if layout in ("CHW", "BCHW") else field


def map_of(name: str, value: object) -> Array:
    """A map as an array (H, W): of any type, with axes of length 1 in front or behind removed."""
    array = plain(np.asarray(value)) if _is_pil(value) else to_numpy(name, value, "(H, W)")
    while array.ndim > 2 and array.shape[0] == 1:
        array = array[0]
    return array[..., 0] if array.ndim == 3 and array.shape[2] == 1 else array


def to_numpy(name: str, value: object, shape: str, fill: bool = True) -> Array:
    """Any array, tensor, image or nested list as a numpy array that PyTorch can share.

    shape: what errors say about the argument. fill: masked values become NaN, or False.
    """
    return plain(_any_to_numpy(name, value, shape, fill))


def plain(array: Array) -> Array:
    """The array itself, or a copy if PyTorch rejects its byte order or strides, or if it is of a subclass.

    Negative strides do not show in numpy's flags along an axis of length 1.
    """
    array = np.asarray(array)
    native = array.dtype.newbyteorder("=")
    return array if array.dtype == native and min(array.strides, default=0) >= 0 else array.astype(native, order="C")


def _any_to_numpy(name: str, value: object, shape: str, fill: bool) -> Array:
    if isinstance(value, np.ma.MaskedArray):
        if not fill or not np.ma.is_masked(value):
            return np.asarray(value.data)
        empty: Any = np.nan if value.dtype.kind == "f" else False
        if value.dtype.kind in "iu":
            return np.where(np.ma.getmaskarray(value), np.nan, value.data.astype(np.float64))
        return np.asarray(value.filled(empty))
    if isinstance(value, np.ndarray):
        return value
    if _is_torch(value):
        tensor: Any = value.detach()  # type: ignore[attr-defined]
        half = tensor.dtype.itemsize < 4 and tensor.is_floating_point()  # numpy has no bfloat16
        return np.asarray((tensor.float() if half else tensor).cpu())
    if isinstance(value, tuple) and len(value) == 2 and isinstance(value[0], np.ndarray):
        raise InputError(
            f"{name} must be an array {shape}, got a pair; fi.read_flow returns (flow, valid): pass its first part"
        )
    if isinstance(value, list | tuple):
        try:
            array = np.asarray(value)
            return np.asarray(value, np.float64) if array.dtype.kind in "iuO" else array
        except (TypeError, ValueError) as error:
            raise InputError(f"{name} must be an array of numbers {shape}, got a ragged or mixed list") from error
    if hasattr(value, "__array__") and not isinstance(value, str | bytes | type):
        try:
            return np.asarray(value)
        except (TypeError, ValueError, RuntimeError) as error:
            raise InputError(f"{name} must be an array {shape}, got {type(value).__name__}: {error}") from error
    hint = ""
    if isinstance(value, str | PathLike):
        reader = {"flow": "read_flow", "mask": "read_mask", "image": "read_image", "second": "read_image"}.get(name)
        hint = f"; read a file with fi.{reader}" if reader else ""
    raise InputError(f"{name} must be an array {shape}, got {type(value).__name__}{hint}")


def _layout_of(
    field: Array, size: tuple[int, ...] | None, torch_flow: bool, xarray_flow: bool, name: str = "flow"
) -> Layout:
    """The axes of a flow, from its shape and the size of its image; InputError if it has none of the layouts.

    Only tensors and DataArrays may have channels first, which is their convention.
    """
    shape = field.shape
    if field.ndim == 2:
        if size is not None and shape != size and shape[1] <= _MOST_COMPONENTS < size[1]:
            raise InputError(
                f"flow must be a field (H, W, C), got an array of shape {shape}; for a list of points use "
                "fi.inpaint_points(image, points, values)"
            )
        return "HW"
    if field.ndim == 3 and (torch_flow or xarray_flow):
        if size is not None:
            return "CHW" if shape[:2] != size and shape[1:] == size else "HWC"
        return "CHW" if shape[0] <= _MOST_COMPONENTS < shape[2] else "HWC"
    if field.ndim == 4 and torch_flow:
        if shape[0] == 1:
            return "BCHW"
        raise InputError(
            f"flow must be one field, got a batch of shape {shape}; loop over it, or use fi.load_model for batches"
        )
    if field.ndim != 3 or min(shape) < 1:
        raise InputError(f"{name} must have a non-empty shape (H, W, C) or (H, W), got {shape}")
    return "HWC"


def _is_pil(value: object) -> bool:
    return type(value).__module__.partition(".")[0] == "PIL"


def _is_torch(value: object) -> bool:
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(value, torch.Tensor)


def _is_xarray(value: object) -> bool:
    xarray = sys.modules.get("xarray")
    return xarray is not None and isinstance(value, xarray.DataArray)
