"""`flowinpaint reproduce`."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Annotated

import typer
from rich.text import Text

from flowinpaint.checks import check_device
from flowinpaint.cli.console import output, runs_bar, say, tell_written
from flowinpaint.cli.options import Device, Jobs, MaxBytes, Seed, parse_list
from flowinpaint.cli.train import training_display
from flowinpaint.errors import InputError
from flowinpaint.extras import needs
from flowinpaint.interrupts import exit_code
from flowinpaint.reproduction.cost import figure_cost
from flowinpaint.reproduction.curves import figure_data, figure_density
from flowinpaint.reproduction.experiment import METHODS, NETWORKS, PAPER_SCALE, QUICK_SCALE, budget_of, check_names
from flowinpaint.reproduction.frames import FrameOptions, folders_without_flow
from flowinpaint.reproduction.networks import Callbacks, NetworkOptions
from flowinpaint.reproduction.page import Page, write_page
from flowinpaint.reproduction.runs import RunOptions, open_records
from flowinpaint.reproduction.samples import figure_samples
from flowinpaint.reproduction.session import Session
from flowinpaint.reproduction.tables import table1, table2, table3
from flowinpaint.reproduction.timing import read_times
from flowinpaint.viz.plots import can_plot

_OUT, _QUICK_OUT = "reproduction", "reproduction-quick"
NETWORKS_PART, ALL = "networks", "all"
PAGES: dict[str, Callable[[Session], Page]] = {
    "table1": table1,
    "table2": table2,
    "table3": table3,
    "figure-data": figure_data,
    "figure-density": figure_density,
    "figure-cost": figure_cost,
    "figure-samples": figure_samples,
}
PARTS = (NETWORKS_PART, *PAGES, ALL)
_HELP = f"Parts: {', '.join(PARTS)}."
_in_frames = partial(typer.Option, rich_help_panel="Frames")
_folder = partial(_in_frames, metavar="DIR")
_in_training = partial(typer.Option, rich_help_panel="Training")


def command(
    parts: Annotated[list[str], typer.Argument(metavar="PART...", help=_HELP)],
    out: Annotated[
        Path | None,
        typer.Option("--out", "-o", metavar="DIR", help=f"Output folder; default {_OUT} or {_QUICK_OUT}."),
    ] = None,
    quick: Annotated[
        bool, typer.Option("--quick", help="Rehearse everything with tiny networks; the results are meaningless.")
    ] = False,
    methods: Annotated[
        str | None,
        typer.Option(metavar="LIST", help="Methods to run, except in Table 2: ours, flownets, wgain, pd, eed, ..."),
    ] = None,
    only: Annotated[
        str | None, typer.Option(metavar="LIST", help="Networks to train in the part 'networks'; default all.")
    ] = None,
    sintel: Annotated[Path | None, _folder(help="Folder of MPI-Sintel in its own layout.")] = None,
    kitti: Annotated[Path | None, _folder(help="Folder of KITTI 2015 in its own layout.")] = None,
    flyingthings: Annotated[Path | None, _folder(help="Folder of FlyingThings3D or its subset.")] = None,
    root: Annotated[Path | None, _folder(help="Folder of frames, as for 'evaluate'.")] = None,
    scenes: Annotated[int, _in_frames(min=0, help="Number of generated frames to add, like those of training.")] = 0,
    frames: Annotated[int, _in_frames(min=0, help="Largest number of frames per data set; 0 for all.")] = 0,
    minutes: Annotated[float | None, _in_training(help="Training time of each network in minutes; default 3.")] = None,
    steps: Annotated[int | None, _in_training(help="Training steps of each network, instead of --minutes.")] = None,
    bank: Annotated[Path | None, _in_training(metavar="FILE", help="Picture bank for generated scenes.")] = None,
    setting: Annotated[
        list[str] | None, _in_training("--set", metavar="TABLE.KEY=VALUE", help="Setting of every network; repeatable.")
    ] = None,
    models: Annotated[
        Path | None, _in_training(metavar="DIR", help="Folder of NAME.safetensors to use instead of training.")
    ] = None,
    train: Annotated[
        bool, _in_training("--train/--no-train", help="Train missing networks, or leave them out.")
    ] = True,
    records: Annotated[
        list[Path] | None,
        typer.Option(metavar="FILE", help="File records.jsonl of another machine, to reuse its runs."),
    ] = None,
    times: Annotated[
        list[Path] | None, typer.Option(metavar="FILE", help="File times.json of another machine, to show as well.")
    ] = None,
    batch: Annotated[int, typer.Option(min=1, help="Number of frames that a network fills in one call.")] = 1,
    jobs: Jobs = 1,
    seed: Seed = 0,
    device: Device = "auto",
    max_bytes: MaxBytes = None,
) -> None:
    """Reproduce the paper's tables and figures: train the networks, fill the frames, and write the pages.

    Each part becomes a .csv, .md, .png and .svg. After an interruption, the same command continues.
    """
    wanted = check_names("PART", parts, PARTS)
    if ALL in wanted:
        wanted = (NETWORKS_PART, *PAGES)
    chosen = None if methods is None else check_names("--methods", parse_list("--methods", methods), METHODS)
    networks = None if only is None else check_names("--only", parse_list("--only", only), NETWORKS)
    if networks is not None and NETWORKS_PART not in wanted:
        raise InputError(f"--only needs the part '{NETWORKS_PART}'; --methods chooses methods for the other parts")
    if wanted == (NETWORKS_PART,) and not train:
        raise InputError(f"--no-train must not be combined with the part '{NETWORKS_PART}' alone, which only trains")
    scale = QUICK_SCALE if quick else PAPER_SCALE
    pictures = None if bank is None else str(bank)
    network_options = NetworkOptions(budget_of(minutes, steps), pictures, models, tuple(setting or ()), train)
    frame_options = FrameOptions(sintel, kitti, flyingthings, root, scenes, frames or scale.frames, pictures or "")
    run_options = RunOptions(str(check_device(device)), jobs, batch, seed)
    folder = out or Path(_QUICK_OUT if quick else _OUT)
    for path in times or ():
        read_times(path)  # raises errors before anything is trained
    callbacks = Callbacks(partial(say, "Note:", "yellow"), training_display, runs_bar)
    for name in folders_without_flow(frame_options):
        callbacks.note(f"{name} holds no flow and is not in the paper's tables.")
    if not can_plot():
        callbacks.note(f"no pictures will be drawn; drawing {needs('plots')}.")
    with open_records(folder, records or ()) as known:
        options = (frame_options, network_options, run_options)
        session = Session(folder, scale, *options, known, chosen, callbacks, tuple(times or ()))
        try:
            session.check_frames(wanted)
            if NETWORKS_PART in wanted and train:
                finished = session.train(networks)
                output.print(Text(f"{len(finished)} networks are in {session.networks.folder}."), soft_wrap=True)
            for name in [part for part in wanted if part in PAGES]:
                session.missing.clear()
                tell_written(*write_page(folder / name, PAGES[name](session), quick))
        except KeyboardInterrupt as stopped:
            reason = f"{stopped}; " if str(stopped) else ""
            say("Stopped:", "yellow", f"{reason}finished results are in {folder}; the same command continues.")
            raise typer.Exit(exit_code()) from None
