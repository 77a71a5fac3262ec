"""Reproductions that take seconds: tiny networks on simple scenes, and frames of a tiny bank."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
import torch

from flowinpaint.data.generator.config import LayeredConfig
from flowinpaint.data.generator.render import LayeredFlow
from flowinpaint.reproduction import frames
from flowinpaint.reproduction.audience import Audience
from flowinpaint.reproduction.frames import FrameChoice
from flowinpaint.reproduction.ledger import open_ledger
from flowinpaint.reproduction.measuring import Machine
from flowinpaint.reproduction.networks import NetworkShelf, Orders
from flowinpaint.reproduction.scale import QUICK_SCALE, Budget, Scale
from flowinpaint.reproduction.session import Session
from scene_bank import tiny_bank

MakeSession = Callable[..., Session]


@pytest.fixture
def scale() -> Scale:
    settings = (*QUICK_SCALE.settings, "data.size=[32, 32]")
    return Scale(
        rehearsal=True,
        crop=32,
        frames=2,
        budget=Budget(steps=1),
        scenes=2,
        wide_scenes=1,
        wide_size=(24, 48),
        settings=settings,
        family_settings=QUICK_SCALE.family_settings,
        sampling={"sampling_steps": 2, "resampling_steps": 1},
        repeats=1,
    )


@pytest.fixture
def tiny_scenes(monkeypatch: pytest.MonkeyPatch, simple_scenes: None) -> Iterator[None]:
    """Train on scenes that cost nothing, and let frames be painted with the pictures of a tiny bank."""

    def generator(size: tuple[int, int], layered: LayeredConfig, bank: str) -> LayeredFlow:
        return LayeredFlow(layered, size, tiny_bank())

    monkeypatch.setattr(frames, "_generator", generator)
    frames._scene.cache_clear()
    yield
    frames._scene.cache_clear()


@pytest.fixture
def make_session(tmp_path: Path, scale: Scale, tiny_scenes: None) -> Iterator[MakeSession]:
    """Makes a session in a folder `out`; what it notes is in `told`."""
    with ExitStack() as stack:

        def make(
            orders: Orders | None = None, machine: Machine | None = None, records: tuple[Path, ...] = (), **fields: Any
        ) -> Session:
            stack.close()  # the ledger of an earlier one
            own_scale = fields.pop("scale", scale)
            out = fields.pop("out", tmp_path / "out")
            told: list[str] = []
            audience = fields.pop("audience", Audience(note=told.append))
            ledger = stack.enter_context(open_ledger(out, records))
            shelf = NetworkShelf(out / "networks", own_scale, orders or Orders(), torch.device("cpu"), audience)
            choice = fields.pop("choice", FrameChoice())
            machine = machine or Machine("cpu")
            return Session(out, own_scale, choice, machine, shelf, ledger, audience, records=records, **fields)

        yield make
