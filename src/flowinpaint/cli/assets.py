"""`flowinpaint assets`: build and preview picture banks."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import numpy as np
import torch
import typer
from rich.progress import BarColumn, MofNCompleteColumn, TimeElapsedColumn
from rich.text import Text

from flowinpaint.cli.console import output, progress_bar, say, tell_written
from flowinpaint.cli.options import MaxBytes
from flowinpaint.data.assets import LONGEST, OPTIONS, build_bank
from flowinpaint.data.bank import BANK_SUFFIX, KINDS, MAX_SIDE, MIN_SIDE, PictureBank, bank_picture, read_bank
from flowinpaint.data.generator.render import LayeredFlow
from flowinpaint.data.procedural_pictures import procedural_bank
from flowinpaint.errors import InputError
from flowinpaint.io import check_image_writable, make_folder, new_folder, write_image
from flowinpaint.opencv import cv2
from flowinpaint.viz.colours import Rgb, as_rgb, field_range, flow_to_rgb
from flowinpaint.viz.sheet import Panel, contact_sheet

app = typer.Typer(no_args_is_help=True, help="Build and show picture banks for generated training scenes.")

Folders = list[Path]

_SCENES_AT_ONCE = 4
_COLUMNS = 6
_SKIPPED_SHOWN = 10
_GREY, _BORDER = 128, (255, 230, 0)


@app.command()
def build(
    out: Annotated[Path, typer.Option("--out", "-o", metavar="BANK", help="Bank to write, a .safetensors file.")],
    photos: Annotated[
        Folders | None,
        typer.Option(
            metavar="DIR", help="Folder of photos; NAME.png, NAME_coarse.png or NAME_fine.png label segments."
        ),
    ] = None,
    cutouts: Annotated[
        Folders | None,
        typer.Option(
            metavar="DIR", help="Folder of PNGs with an alpha channel, or of pictures with silhouettes NAME.png."
        ),
    ] = None,
    textures: Annotated[Folders | None, typer.Option(metavar="DIR", help="Folder of pictures of materials.")] = None,
    longest: Annotated[
        int, typer.Option(min=MIN_SIDE, max=MAX_SIDE, help="Longest side in px; larger pictures are reduced.")
    ] = LONGEST,
    jobs: Annotated[int, typer.Option(min=1, help="Number of threads.")] = 4,
    max_bytes: MaxBytes = None,
) -> None:
    """Build a bank from the pictures in folders and their subfolders.

    Each option can be repeated. Omitted kinds are replaced by procedural pictures.
    """
    folders = {"photos": photos or [], "materials": textures or [], "cutouts": cutouts or []}
    if not any(folders.values()):
        raise InputError("at least one of --photos, --cutouts and --textures must be set, got none")
    if out.suffix != BANK_SUFFIX:
        raise InputError(f"--out must end in {BANK_SUFFIX}, got {out}")
    skipped: list[str] = []

    def skip(sentence: str) -> None:
        skipped.append(sentence)
        if len(skipped) <= _SKIPPED_SHOWN + 1:
            say("Skipped:", "yellow", sentence if len(skipped) <= _SKIPPED_SHOWN else "and more …")

    columns = (BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with new_folder(out.parent), progress_bar("pictures", *columns, total=None) as (bar, task):

        def report(done: int, total: int) -> None:
            bar.update(task, completed=done, total=total)

        counts = build_bank(folders, out, longest=longest, jobs=jobs, progress=report, skipped=skip)
    parts = [f"{counts[kind]} {OPTIONS[kind]}{'' if folders[kind] else ' (drawn)'}" for kind in KINDS]
    lost = f"; skipped: {len(skipped)}" if skipped else ""
    size = out.stat().st_size / 1e6
    output.print(Text(f"Wrote {out}: {', '.join(parts)}, {size:.1f} MB{lost}."), soft_wrap=True)


@app.command()
def preview(
    out: Annotated[Path, typer.Option("--out", "-o", metavar="FILE", help="Image to write.")],
    bank: Annotated[
        Path | None, typer.Argument(metavar="[BANK]", help="Bank to draw from; default procedural pictures.")
    ] = None,
    pictures: Annotated[bool, typer.Option("--pictures", help="Draw the bank's pictures instead of scenes.")] = False,
    count: Annotated[int, typer.Option(min=1, help="Number of scenes or pictures.")] = 24,
    seed: Annotated[int, typer.Option(min=0, help="Seed of the scenes or pictures.")] = 0,
    size: Annotated[int, typer.Option(min=32, max=2048, help="Height and width of each scene or picture in px.")] = 256,
) -> None:
    """Draw a sheet of generated scenes (image above flow), or of the pictures in a bank."""
    check_image_writable(out)
    source = procedural_bank() if bank is None else read_bank(bank)
    panels = _pictures(source, count, seed, size) if pictures else _scenes(source, count, seed, size)
    make_folder(out.parent)
    write_image(out, contact_sheet(panels, min(count, _COLUMNS)))
    tell_written(out)


def _scenes(bank: PictureBank, count: int, seed: int, size: int) -> list[Panel | None]:
    """Scenes 0, 1, … of a seed: image above flow, titled with the magnitude of the full colours."""
    source = LayeredFlow(size=(size, size), bank=bank, seed=seed)
    panels: list[Panel | None] = []
    for first in range(0, count, _SCENES_AT_ONCE):
        samples = torch.arange(first, min(first + _SCENES_AT_ONCE, count))
        batch = source.scenes(samples)
        images, flows = (planes.movedim(1, -1).numpy() for planes in (batch.image, batch.flow))
        for number, image, flow in zip(samples.tolist(), images, flows, strict=True):
            title = f"{number}\nup to {field_range(flow).high:.1f} px"
            panels.append((title, np.concatenate([as_rgb(image), flow_to_rgb(flow)])))
    return panels


def _pictures(bank: PictureBank, count: int, seed: int, size: int) -> list[Panel | None]:
    """Random pictures of each kind, with segment borders and the outside of silhouettes marked."""
    rng = np.random.default_rng(seed)
    panels: list[Panel | None] = []
    for place, kind in enumerate(KINDS):
        share, present = (count + len(KINDS) - 1 - place) // len(KINDS), len(getattr(bank, kind))
        for number in np.sort(rng.choice(present, min(share, present), replace=False)).tolist():
            panels.append((f"{OPTIONS[kind]} {number}", _marked(bank, kind, number, size)))
    return panels


def _marked(bank: PictureBank, kind: str, number: int, size: int) -> Rgb:
    """A picture of a bank, reduced or enlarged to fit size×size."""
    colour, extra = bank_picture(bank, kind, number)
    height, width = extra.shape
    share = size / max(height, width)
    target = (max(1, round(width * share)), max(1, round(height * share)))
    if kind == "cutouts":
        colour[extra == 0] = _GREY
    colour = np.asarray(cv2.resize(colour, target, interpolation=cv2.INTER_AREA), np.uint8)
    if kind == "photos":
        labels = np.asarray(cv2.resize(extra, target, interpolation=cv2.INTER_NEAREST_EXACT))
        colour[:-1][labels[1:] != labels[:-1]] = _BORDER
        colour[:, :-1][labels[:, 1:] != labels[:, :-1]] = _BORDER
    return colour
