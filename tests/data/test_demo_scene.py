import numpy as np
import numpy.typing as npt
import pytest

from flowinpaint.data import demo_scene as scene_module
from flowinpaint.data.demo_scene import Scene, sample_scene
from flowinpaint.errors import InputError


@pytest.fixture(scope="module")
def scene() -> Scene:
    return sample_scene()


def steps(flow: npt.NDArray[np.float32]) -> npt.NDArray[np.float32]:
    """The larger of the flow's changes to the pixel on the right and below (H-1, W-1)."""
    right = np.linalg.norm(flow[:-1, 1:] - flow[:-1, :-1], axis=2)
    below = np.linalg.norm(flow[1:, :-1] - flow[:-1, :-1], axis=2)
    return np.asarray(np.maximum(right, below), np.float32)


def test_shapes_and_types(scene: Scene) -> None:
    assert scene.image.shape == (320, 480, 3)
    assert scene.image.dtype == np.uint8
    assert scene.flow.shape == (320, 480, 2)
    assert scene.flow.dtype == np.float32


@pytest.mark.parametrize("seed", range(4))
def test_magnitudes_are_those_of_video(seed: int) -> None:
    magnitude = np.linalg.norm(sample_scene(96, 144, seed).flow, axis=2)
    assert 0.2 < magnitude.min() < 1.5
    assert 9 < magnitude.max() < 17


def test_the_flow_is_smooth_inside_layers_and_jumps_between_them(scene: Scene) -> None:
    jump = steps(scene.flow)
    is_edge = jump > 0.3
    assert 0.01 < is_edge.mean() < 0.1
    assert jump.max() > 5
    # Nothing lies between a layer's smooth variation and a jump: edges are sharp, one pixel wide.
    assert np.quantile(jump[~is_edge], 0.98) < 0.2
    assert np.median(jump) < 0.05
    assert np.median(jump[~is_edge]) > 0


def test_the_image_has_edges_that_the_flow_has_not(scene: Scene) -> None:
    contrast = steps(scene.image.astype(np.float32))
    assert (contrast[steps(scene.flow) < 0.3] > 40).mean() > 0.02


def test_flow_edges_show_in_the_image(scene: Scene) -> None:
    contrast, jump = steps(scene.image.astype(np.float32)), steps(scene.flow)
    assert np.median(contrast[jump > 2]) > 3 * np.median(contrast[jump < 0.3])


def test_the_seed_decides() -> None:
    first, again, other = sample_scene(48, 64, 1), sample_scene(48, 64, 1), sample_scene(48, 64, 2)
    assert np.array_equal(first.image, again.image)
    assert np.array_equal(first.flow, again.flow)
    assert not np.array_equal(first.image, other.image)
    assert not np.array_equal(first.flow, other.flow)


def test_bands_do_not_show(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = sample_scene(60, 90, 5)
    monkeypatch.setattr(scene_module, "_BAND_SAMPLES", 90 * 9 * 7)
    banded = sample_scene(60, 90, 5)
    # Sums may round otherwise in matrices of another size, which can tip a sample on a border.
    assert (np.abs(whole.image.astype(int) - banded.image) <= 1).mean() > 0.999
    assert np.isclose(whole.flow, banded.flow, atol=1e-4).mean() > 0.999


@pytest.mark.parametrize("size", [(8, 8), (8, 200), (200, 8), (33, 57), (200, 100)])
def test_any_size_is_painted_with_moderate_flow(size: tuple[int, int]) -> None:
    scene = sample_scene(*size, seed=2)
    assert scene.image.shape == (*size, 3)
    assert scene.flow.shape == (*size, 2)
    assert np.isfinite(scene.flow).all()
    assert np.linalg.norm(scene.flow, axis=2).max() < 25
    assert scene.image.std() > 5


@pytest.mark.parametrize("size", [(7, 100), (100, 0)])
def test_too_small_a_size_is_named(size: tuple[int, int]) -> None:
    with pytest.raises(InputError, match="height and width must be at least 8 px"):
        sample_scene(*size)
