"""`flowinpaint reproduce`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer
from rich.text import Text

from flowinpaint.checks import check_device
from flowinpaint.cli.console import output, runs_bar, say
from flowinpaint.cli.options import Device, Jobs, Seed, parse_list
from flowinpaint.cli.train import training_display
from flowinpaint.errors import InputError
from flowinpaint.reproduction.audience import Audience
from flowinpaint.reproduction.frames import FrameChoice, left_out_folders
from flowinpaint.reproduction.ledger import open_ledger
from flowinpaint.reproduction.measuring import Machine
from flowinpaint.reproduction.networks import NetworkShelf, Orders
from flowinpaint.reproduction.parts import NETWORKS_PART, PARTS, check_frames, check_parts, train_networks, write_parts
from flowinpaint.reproduction.scale import PAPER_SCALE, QUICK_SCALE, Budget
from flowinpaint.reproduction.session import Session
from flowinpaint.reproduction.study import StudyNetwork, check_contenders, check_networks
from flowinpaint.reproduction.times import read_times
from flowinpaint.viz.plots import can_plot

_OUT, _QUICK_OUT = "reproduction", "reproduction-quick"
_HELP = f"What to make: {', '.join(PARTS)}."


def _folder(sentence: str) -> typer.models.OptionInfo:
    option: typer.models.OptionInfo = typer.Option(metavar="DIR", help=sentence, rich_help_panel="Frames")
    return option


def command(
    parts: Annotated[list[str], typer.Argument(metavar="PART...", help=_HELP)],
    out: Annotated[
        Path | None,
        typer.Option("--out", "-o", metavar="DIR", help=f"The folder to write to; {_OUT}, or {_QUICK_OUT}."),
    ] = None,
    quick: Annotated[
        bool, typer.Option("--quick", help="Rehearse everything with tiny networks; the figures mean nothing.")
    ] = False,
    methods: Annotated[
        str | None, typer.Option(metavar="LIST", help="Only these, but in Table 2: ours, flownets, wgain, pd, eed, ...")
    ] = None,
    only: Annotated[
        str | None, typer.Option(metavar="LIST", help="Only these networks, for the part 'networks'.")
    ] = None,
    sintel: Annotated[Path | None, _folder("MPI-Sintel as it is distributed.")] = None,
    kitti: Annotated[Path | None, _folder("KITTI 2015 as it is distributed.")] = None,
    flyingthings: Annotated[Path | None, _folder("FlyingThings3D, or its subset, as it is distributed.")] = None,
    root: Annotated[Path | None, _folder("Folders of frames, as 'evaluate' takes them.")] = None,
    scenes: Annotated[
        int, typer.Option(min=0, help="Generated frames to add, of the training's kind.", rich_help_panel="Frames")
    ] = 0,
    frames: Annotated[
        int, typer.Option(min=0, help="Frames of a data set at most; 0 for all.", rich_help_panel="Frames")
    ] = 0,
    minutes: Annotated[
        float | None, typer.Option(help="Training of each network; 3 without it.", rich_help_panel="Training")
    ] = None,
    steps: Annotated[int | None, typer.Option(help="Steps in place of minutes.", rich_help_panel="Training")] = None,
    bank: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Pictures for generated scenes.", rich_help_panel="Training"),
    ] = None,
    setting: Annotated[
        list[str] | None,
        typer.Option(
            "--set", metavar="TABLE.KEY=VALUE", help="A setting of every network.", rich_help_panel="Training"
        ),
    ] = None,
    models: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="NAME.safetensors to take instead of training.", rich_help_panel="Training"),
    ] = None,
    train: Annotated[
        bool,
        typer.Option("--train/--no-train", help="Train what is missing, or leave it out.", rich_help_panel="Training"),
    ] = True,
    records: Annotated[
        list[Path] | None, typer.Option(metavar="FILE", help="records.jsonl of another machine, whose runs count.")
    ] = None,
    times: Annotated[
        list[Path] | None, typer.Option(metavar="FILE", help="times.json of another machine, to draw beside.")
    ] = None,
    batch: Annotated[int, typer.Option(min=1, help="Frames that a network fills in one call.")] = 1,
    jobs: Jobs = 1,
    seed: Seed = 0,
    device: Device = "auto",
) -> None:
    """Reproduce the paper's tables and figures: train the networks, fill the frames, and write the pages.

    Each part becomes a .csv, .md, .png and .svg. Stopped and called again, it goes on where it was.
    """
    wanted = check_parts(parts)
    chosen = None if methods is None else check_contenders(parse_list("--methods", methods))
    networks = _only(only, wanted)
    if wanted == [NETWORKS_PART] and not train:
        raise InputError(f"--no-train: it was given with the part {NETWORKS_PART!r} alone, which only trains.")
    budget = None
    if minutes is not None or steps is not None:
        budget = _budget(minutes, steps)
    scale = QUICK_SCALE if quick else PAPER_SCALE
    orders = Orders(budget, None if bank is None else str(bank), models, tuple(setting or ()), train)
    most, pictures = frames or scale.frames, "" if bank is None else str(bank)
    choice = FrameChoice(sintel, kitti, flyingthings, root, scenes, most, pictures)
    folder = out or Path(_QUICK_OUT if quick else _OUT)
    place = check_device(device)
    for path in times or ():
        read_times(path)  # what is wrong with it is to be known before anything is trained
    for name in left_out_folders(choice):
        say("Note:", "yellow", f"{name} holds no flow, and has no place in the paper's tables.")
    if not can_plot():
        say("Note:", "yellow", "no pictures will be drawn; they need matplotlib, the extra 'plots'.")
    audience = Audience(lambda sentence: say("Note:", "yellow", sentence), training_display, runs_bar)
    shelf = NetworkShelf(folder / "networks", scale, orders, place, audience)
    with open_ledger(folder, records or ()) as ledger:
        session = Session(
            folder,
            scale,
            choice,
            Machine(str(place), jobs, batch, seed),
            shelf,
            ledger,
            audience,
            chosen,
            tuple(records or ()),
            tuple(times or ()),
        )
        try:
            _make(session, wanted, networks)
        except KeyboardInterrupt as stopped:
            told = f"{stopped}; " if str(stopped) else ""
            say("Stopped:", "yellow", f"{told}what is finished is in {folder}; the same command goes on from there.")
            raise typer.Exit(130) from None


def _make(session: Session, parts: Sequence[str], networks: Sequence[StudyNetwork] | None) -> None:
    check_frames(session, parts)
    if NETWORKS_PART in parts and session.shelf.orders.train:
        there = train_networks(session, networks)
        output.print(Text(f"{len(there)} networks are in {session.shelf.folder}."), soft_wrap=True)
    for _, written in write_parts(session, [part for part in parts if part != NETWORKS_PART]):
        output.print(Text(f"Wrote {', '.join(map(str, written))}."), soft_wrap=True)


def _only(text: str | None, parts: Sequence[str]) -> list[StudyNetwork] | None:
    if text is None:
        return None
    if NETWORKS_PART not in parts:
        raise InputError(f"--only: {text!r} was given without the part '{NETWORKS_PART}'; --methods chooses methods.")
    return check_networks(parse_list("--only", text))


def _budget(minutes: float | None, steps: int | None) -> Budget:
    if minutes is not None and not 0 < minutes < float("inf"):
        raise InputError(f"--minutes: {minutes:g} was given; a number above 0 is taken.")
    if steps is not None and steps < 1:
        raise InputError(f"--steps: {steps} was given; 1 or more is taken.")
    return Budget(minutes or 0.0, steps or 0)
