"""Wrong or unusual inputs of `fi.inpaint`, and what it does with each: the table of docs/inputs.md.

`python docs/unusual_inputs.py` prints the outcomes of the installed version as JSON; with `--page docs/inputs.md` it
writes those that the table says into the column "now".
"""

from __future__ import annotations

import json
import sys
import tempfile
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import torch

import flowinpaint as fi
from flowinpaint.data.demo_scene import sample_scene

H, W = 48, 64
IMAGE, TRUTH = sample_scene(H, W, seed=1)
MASK = fi.random_mask((H, W), density=0.1, seed=0)
FLOW = np.where(MASK[..., None], TRUTH, np.nan).astype(np.float32)
FILLED = np.nan_to_num(FLOW)
DEPTH = (5 + np.abs(TRUTH[..., 0])).astype(np.float32)
TOLERATED = 1.3
"""A fill with an endpoint error below this multiple of that of the usual form of the same input is right."""

Case = Callable[[], Any]


def fill(image: Any = IMAGE, flow: Any = FLOW, mask: Any = None, **keywords: Any) -> Any:
    """The field of a fill without a network."""
    return fi.inpaint(image, flow, mask, **{"method": "laplace-beltrami", "device": "cpu", **keywords}).flow


def tensor(x: Any, first: bool = False) -> torch.Tensor:
    """A tensor (H, W, C), or (C, H, W) with channels first."""
    return torch.from_numpy(np.ascontiguousarray(np.moveaxis(x, -1, 0) if first else x))


def data_array(x: Any, dims: tuple[str, ...]) -> Any:
    """An xarray DataArray."""
    import xarray

    return xarray.DataArray(x, dims=dims)


def pil(x: Any, mode: str) -> Any:
    """A PIL image of a mode."""
    from PIL import Image

    return Image.fromarray(x).convert(mode)


def read_depth_file() -> Any:
    """Fill a depth map in millimetres that a 16-bit PNG holds, read without a unit."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "depth.png"
        cv2.imwrite(str(path), np.where(MASK, DEPTH * 1000, 0).astype(np.uint16))
        try:
            field, _ = fi.read_flow(path)
        except ValueError as error:
            raise ValueError(str(error).replace(f"{folder}/", "")) from None
    return fill(IMAGE, field)[..., 0]


def entries() -> list[list[float | None]]:
    """Rows of numbers, None where unknown."""
    return [
        [float(x) if known else None for x, known in zip(*row, strict=True)]
        for row in zip(TRUTH[..., 0], MASK, strict=True)
    ]


CASES: dict[str, Case] = {
    "flow: tensor (H, W, 2)": lambda: fill(IMAGE, tensor(FLOW)),
    "flow: tensor (2, H, W), image: tensor (3, H, W)": lambda: fill(tensor(IMAGE, True), tensor(FLOW, True)),
    "flow: tensor (1, 2, H, W)": lambda: fill(IMAGE, tensor(FLOW, True)[None]),
    "flow: tensor (2, 2, H, W), a batch": lambda: fill(IMAGE, torch.stack([tensor(FLOW, True)] * 2)),
    "flow: tensor of float64": lambda: fill(IMAGE, tensor(FLOW).double()),
    "flow: tensor of bfloat16": lambda: fill(IMAGE, tensor(FLOW).bfloat16()),
    "flow: tensor that requires gradients": lambda: fill(IMAGE, tensor(FLOW).requires_grad_()),
    "flow: masked array": lambda: fill(
        IMAGE, np.ma.MaskedArray(np.where(MASK[..., None], TRUTH, 99), ~np.dstack([MASK] * 2))
    ),
    "flow: masked array of integers": lambda: (
        fill(IMAGE, np.ma.MaskedArray(np.where(MASK, 100 * TRUTH[..., 0], -9999).astype(np.int16), ~MASK)) / 100
    ),
    "flow: DataArray (y, x, c)": lambda: fill(IMAGE, data_array(FLOW, ("y", "x", "c"))),
    "flow: DataArray (c, y, x)": lambda: fill(IMAGE, data_array(np.moveaxis(FLOW, -1, 0), ("c", "y", "x"))),
    "flow: nested list": lambda: fill(IMAGE, FLOW.tolist()),
    "flow: nested list with None": lambda: fill(IMAGE, entries()),
    "flow: ragged list": lambda: fill(IMAGE, [[1.0], [2.0, 3.0]]),
    "flow: the name of a file": lambda: fill(IMAGE, "flow.flo"),
    "flow: (H, W)": lambda: fill(IMAGE, FLOW[..., 0]),
    "flow: (N, 2), a list of points": lambda: fill(IMAGE, TRUTH[MASK]),
    "flow: array (2, H, W)": lambda: fill(IMAGE, np.moveaxis(FLOW, -1, 0)),
    "flow: (1, H, W, 2)": lambda: fill(IMAGE, FLOW[None]),
    "flow: (W, H, 2)": lambda: fill(IMAGE, FLOW.transpose(1, 0, 2)),
    "flow: (0, W, 2)": lambda: fill(IMAGE, FLOW[:0]),
    "flow: int16": lambda: fill(IMAGE, FILLED.astype(np.int16), MASK),
    "flow: uint16 depth, 0 is unknown": lambda: fill(IMAGE, np.where(MASK, DEPTH * 256, 0).astype(np.uint16)),
    "flow: float16": lambda: fill(IMAGE, FLOW.astype(np.float16)),
    "flow: complex": lambda: fill(IMAGE, FLOW[..., 0] + 1j * FLOW[..., 1]),
    "flow: 1e10 is unknown, as in .flo": lambda: fill(IMAGE, np.where(MASK[..., None], TRUTH, np.float32(1e10))),
    "flow: infinity is unknown": lambda: fill(IMAGE, np.where(MASK[..., None], TRUTH, np.float32(-np.inf))),
    "flow: 0 is unknown": lambda: fill(IMAGE, FILLED),
    "flow: NaN in one channel": lambda: fill(IMAGE, np.dstack([FLOW[..., 0], TRUTH[..., 1]])),
    "flow: every vector known": lambda: fill(IMAGE, TRUTH),
    "flow: NaN everywhere": lambda: fill(IMAGE, FLOW * np.nan),
    "flow: depth of 0 with space='inverse'": lambda: fill(IMAGE, np.where(MASK, DEPTH, 0), space="inverse"),
    "mask: inverted, NaN where unknown": lambda: fill(IMAGE, FLOW, ~MASK),
    "mask: inverted, 0 where unknown": lambda: fill(IMAGE, FILLED, ~MASK),
    "mask: uint8, 0 and 255": lambda: fill(IMAGE, FILLED, MASK.astype(np.uint8) * 255),
    "mask: (H, W, 1)": lambda: fill(IMAGE, FILLED, MASK[..., None]),
    "mask: nested list": lambda: fill(IMAGE, FILLED, MASK.tolist()),
    "mask: tensor (1, H, W)": lambda: fill(IMAGE, FILLED, torch.from_numpy(MASK)[None]),
    "mask: of another size": lambda: fill(IMAGE, FILLED, MASK[1:]),
    "mask: False everywhere": lambda: fill(IMAGE, FILLED, np.zeros_like(MASK)),
    "image: RGBA": lambda: fill(np.dstack([IMAGE, np.full((H, W), 255, np.uint8)])),
    "image: PIL image": lambda: fill(pil(IMAGE, "RGB")),
    "image: PIL image with a palette": lambda: fill(pil(IMAGE, "RGB").quantize(256)),
    "image: float from 0 to 255": lambda: fill(IMAGE.astype(np.float32)),
    "image: int64 from 0 to 255": lambda: fill(IMAGE.astype(np.int64)),
    "image: uint8 from 0 to 1": lambda: fill((IMAGE > 127).astype(np.uint8)),
    "image: uint16 of 12 bits": lambda: fill(IMAGE.astype(np.uint16) * 16),
    "image: masked array": lambda: fill(
        np.ma.MaskedArray(IMAGE, np.broadcast_to(np.arange(H)[:, None, None] < 9, IMAGE.shape))
    ),
    "image: None, method='harmonic'": lambda: fill() + fill(None, method="harmonic") - fill(method="harmonic"),
    "image: None, with a method that needs one": lambda: fill(None),
    "file: 16-bit depth in mm, without a unit": read_depth_file,
}


def outcome(case: Case) -> str:
    """What a case does, in a sentence: it is filled, warns or raises; wrong results with their endpoint error."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            found = case()
        except ValueError as error:
            return f"error: {error}"
        except Exception as error:
            return f"{type(error).__name__}: {error}"
    told = "; ".join(f"warning: {w.message}" for w in caught)
    kind = {"Tensor": "a tensor", "DataArray": "a DataArray"}.get(type(found).__name__, "")
    return "; ".join(filter(None, (_judged(np.asarray(found)), kind, told)))


def _judged(field: Any) -> str:
    """Whether a field is right: "filled", or its endpoint error and the usual one."""
    field = field[0] if field.ndim == 4 else field
    field = np.moveaxis(field, 0, -1) if field.ndim == 3 and field.shape[-2:] == (H, W) else field
    if field.ndim == 2:
        depth = field.min() > 4
        field, truth = field[..., None], (DEPTH if depth else TRUTH[..., 0])[..., None]
        usual = fill(flow=np.where(MASK[..., None], truth, np.nan))
    else:
        truth, usual = TRUTH, fill()
    error, best = (float(np.linalg.norm(x - truth, axis=-1).mean()) for x in (field, usual))
    return "filled" if error < TOLERATED * best else f"filled, EPE {error:.3g} instead of {best:.2g}"


def main() -> None:
    """Print the outcomes, or write them to a page."""
    found = {name: outcome(case) for name, case in CASES.items()}
    if len(sys.argv) != 3:
        print(json.dumps(found, indent=1))
        return
    page = Path(sys.argv[2])
    lines = page.read_text(encoding="utf-8").splitlines()
    for i, line in enumerate(lines):
        cells = [cell.strip() for cell in line.strip("|").split(" | ")]
        if cells[0] in found:
            lines[i] = f"| {cells[0]} | {cells[1]} | {found[cells[0]]} |"
    page.write_text("\n".join(lines) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
