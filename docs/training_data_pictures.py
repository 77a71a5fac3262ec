"""Draw the sheet and the statistics of the page on training data.

    python docs/training_data_pictures.py [--frames ROOT] [--bank BANK.safetensors]

ROOT is a folder of frames with ground truth as for `flowinpaint evaluate`. The figures go to stdout as a table.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import cv2
import matplotlib as mpl
import numpy as np
import numpy.typing as npt
import torch
from edge_statistics import EdgeCounts, count_edges

from flowinpaint.data.bank import PictureBank, read_bank
from flowinpaint.data.folder import find_samples
from flowinpaint.data.generator.render import LayeredFlow
from flowinpaint.viz.colours import as_rgb, flow_to_rgb

mpl.use("Agg")
from matplotlib import pyplot as plt

HERE = Path(__file__).parent
SIDE = 150
SCENES = 128
QUANTILES = (0.25, 0.5, 0.75, 0.95, 0.99)
BINS = np.geomspace(0.1, 300, 49)


class Numbers(NamedTuple):
    """Statistics of a set of frames: magnitudes (N,) in px, and its edges."""

    magnitudes: npt.NDArray[Any]
    edges: EdgeCounts


def main() -> None:
    """Write training-data.jpg and training-data-magnitudes.jpg beside this file."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--frames", type=Path)
    parser.add_argument("--bank", type=Path)
    options = parser.parse_args()
    _write(HERE / "training-data.jpg", _sheet(), 62)
    sets = {"generated, drawn pictures": _numbers(_generated(None))}
    if options.bank:
        sets["generated, bank of photos"] = _numbers(_generated(read_bank(options.bank)))
    if options.frames:
        names = dict.fromkeys(sample.dataset for sample in find_samples(options.frames))
        sets |= {name: _numbers(_frames(options.frames, name)) for name in names if name != "Disparity"}
    _print_table(sets)
    if options.frames:
        _draw_histogram(sets, HERE / "training-data-magnitudes.jpg")


def _sheet() -> npt.NDArray[np.uint8]:
    """24 scenes, each above its flow, and nothing chosen: those with the numbers 0 to 23."""
    batch = LayeredFlow(size=(256, 256)).scenes(torch.arange(24))
    images, flows = (planes.movedim(1, -1).numpy() for planes in (batch.image, batch.flow))
    cells = [
        np.concatenate([cv2.resize(picture, (SIDE, SIDE), interpolation=cv2.INTER_AREA) for picture in pair])
        for pair in ((as_rgb(image), flow_to_rgb(flow)) for image, flow in zip(images, flows, strict=True))
    ]
    rows = [
        np.concatenate([cv2.copyMakeBorder(c, 2, 2, 2, 2, 0, value=(255, 255, 255)) for c in cells[i : i + 6]], 1)
        for i in range(0, 24, 6)
    ]
    return np.concatenate(rows)


Scene = tuple[npt.NDArray[np.uint8], npt.NDArray[Any], npt.NDArray[np.bool_]]


def _generated(bank: PictureBank | None) -> Iterator[Scene]:
    source = LayeredFlow(bank=bank)
    for number in range(SCENES):
        batch = source.scenes(torch.tensor([number]))
        image, flow, valid = (x[0].movedim(0, -1).numpy() for x in batch)
        yield as_rgb(image), flow, valid[..., 0] > 0


def _frames(root: Path, dataset: str) -> Iterator[Scene]:
    for sample in find_samples(root, [dataset]):
        frame = sample.load(0.01)
        yield frame.image, frame.truth, frame.valid


def _numbers(scenes: Iterator[Scene]) -> Numbers:
    """Each frame has the same say in the magnitudes, whatever its size."""
    magnitudes, edges = [], []
    for image, flow, valid in scenes:
        longest = np.sort(np.linalg.norm(flow[valid], axis=-1))
        magnitudes.append(np.interp(np.linspace(0, 1, 2000), np.linspace(0, 1, len(longest)), longest))
        edges.append(count_edges(image, flow, valid))
    return Numbers(np.concatenate(magnitudes), EdgeCounts(*np.sum(edges, 0).tolist()))


def _print_table(sets: dict[str, Numbers]) -> None:
    quantiles = " | ".join(f"{100 * q:.0f} %" for q in QUANTILES)
    print(f"| | {quantiles} | flow edges | with image edge | without | image edges without flow edge |")
    print("|---|--:|--:|--:|--:|--:|--:|--:|--:|--:|")
    for name, (magnitudes, e) in sets.items():
        quantiles = " | ".join(f"{q:.1f}" for q in np.quantile(magnitudes, QUANTILES))
        share, beside = e.flow_edges / e.pixels, e.flow_edges_with_image_edge / e.flow_edges
        alone = 1 - e.image_edges_with_flow_edge / e.image_edges
        print(
            f"| {name} | {quantiles} | {100 * share:.1f} % | {100 * beside:.0f} % | {100 * (1 - beside):.0f} % "
            f"| {100 * alone:.0f} % |"
        )


def _draw_histogram(sets: dict[str, Numbers], path: Path) -> None:
    figure, axes = plt.subplots(figsize=(8, 3.6), dpi=110, layout="constrained")
    for name, (magnitudes, _) in sets.items():
        generated = name.startswith("generated")
        counts, _ = np.histogram(np.clip(magnitudes, BINS[0], BINS[-1]), BINS)
        smooth = np.convolve(counts / counts.sum(), np.ones(3) / 3, "same")
        axes.plot(
            np.sqrt(BINS[1:] * BINS[:-1]),
            100 * smooth,
            label=name,
            lw=2.6 if generated else 1.2,
            ls="-" if generated else "--",
        )
    axes.set(xscale="log", xlabel="length of a flow vector (px)", ylabel="share of the vectors (%)", xlim=(0.1, 300))
    axes.legend(fontsize=8, frameon=False)
    axes.spines[["top", "right"]].set_visible(False)
    figure.canvas.draw()
    _write(path, np.asarray(figure.canvas.buffer_rgba())[..., :3], 85)  # type: ignore[attr-defined]


def _write(path: Path, picture: npt.NDArray[Any], quality: int) -> None:
    cv2.imwrite(
        str(path), cv2.cvtColor(np.ascontiguousarray(picture), cv2.COLOR_RGB2BGR), [cv2.IMWRITE_JPEG_QUALITY, quality]
    )


if __name__ == "__main__":
    main()
