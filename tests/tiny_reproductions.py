"""Reproductions that take seconds: tiny networks on simple scenes, and frames of a tiny bank."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from flowinpaint.data.generator.config import LayeredConfig
from flowinpaint.data.generator.render import LayeredFlow
from flowinpaint.reproduction import frames
from flowinpaint.reproduction.experiment import QUICK_SCALE, Scale, budget_of
from flowinpaint.reproduction.frames import FrameOptions
from flowinpaint.reproduction.networks import Callbacks, NetworkOptions
from flowinpaint.reproduction.runs import RunOptions, open_records
from flowinpaint.reproduction.session import Session
from scene_bank import tiny_bank

MakeSession = Callable[..., Session]


@pytest.fixture
def scale() -> Scale:
    settings = (*QUICK_SCALE.settings, "data.size=[32, 32]", "optimiser.revive_every=0")
    return Scale(
        rehearsal=True,
        crop=32,
        frames=2,
        budget=budget_of(steps=1),
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
    """Makes a session in a folder `out`."""
    with ExitStack() as stack:

        def make(
            options: NetworkOptions | None = None,
            run_options: RunOptions | None = None,
            *,
            scale: Scale = scale,
            out: Path = tmp_path / "out",
            note: Callable[[str], None] = lambda sentence: None,
            frames: FrameOptions | None = None,
            methods: tuple[str, ...] | None = None,
            records: tuple[Path, ...] = (),
            times: tuple[Path, ...] = (),
        ) -> Session:
            stack.close()  # the records of an earlier session
            return Session(
                out,
                scale,
                frames or FrameOptions(),
                options or NetworkOptions(),
                run_options or RunOptions("cpu"),
                stack.enter_context(open_records(out, records)),
                methods,
                Callbacks(note=note),
                times,
            )

        yield make
