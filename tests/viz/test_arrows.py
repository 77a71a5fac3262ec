import numpy as np
import numpy.typing as npt
import pytest

import flowinpaint as fi
from flowinpaint.viz.arrows import arrow_grid, draw_arrows, round_length
from flowinpaint.viz.colours import FieldRange
from flowinpaint.viz.field_picture import LONGEST, field_picture
from flowinpaint.viz.sheet import arrow_key

GREY = np.full((240, 360, 3), 90, np.uint8)
LIMITS = FieldRange(0.0, 10.0)
GRID = arrow_grid((360, 240), LIMITS)


def changed(flow: npt.NDArray[np.float32]) -> npt.NDArray[np.bool_]:
    """The pixels (240, 360) that the arrows of a flow cover."""
    return np.asarray((draw_arrows(GREY, flow, GRID) != GREY).any(axis=2))


def one_arrow(u: float, v: float) -> npt.NDArray[np.bool_]:
    """The pixels of one arrow that starts in the middle."""
    flow = np.full((240, 360, 2), np.nan, np.float32)
    flow[120, 180] = u, v
    return changed(flow)


class TestArrows:
    @pytest.mark.parametrize(("u", "v"), [(10, 0), (-10, 0), (0, 10), (0, -10), (7, -7)])
    def test_they_point_along_the_vector(self, u: float, v: float) -> None:
        rows, columns = np.nonzero(one_arrow(u, v))
        towards = np.array([columns.mean() - 180, rows.mean() - 120])
        vector = np.array([u, v])
        assert towards @ vector > 0.9 * np.linalg.norm(towards) * np.linalg.norm(vector)

    def test_their_length_is_proportional_until_it_is_clipped(self) -> None:
        def length(u: float) -> int:
            return int(np.ptp(np.nonzero(one_arrow(u, 0))[1]))

        assert length(10) - length(5) == pytest.approx(5 * GRID.scale, abs=2)
        assert length(1e6) < 5 * GRID.spacing

    def test_a_zero_vector_is_a_dot(self) -> None:
        assert 4 <= one_arrow(0, 0).sum() <= 40

    def test_edges_are_smooth_and_the_background_is_not_changed(self) -> None:
        before = GREY.copy()
        flow = np.full((240, 360, 2), np.nan, np.float32)
        flow[120, 180] = 9, 3
        assert len(np.unique(draw_arrows(GREY, flow, GRID)[..., 0])) > 10
        assert np.array_equal(GREY, before)

    def test_there_is_one_per_cell(self) -> None:
        dense = changed(np.zeros((240, 360, 2), np.float32))
        counts = [len(np.flatnonzero(np.diff(dense.any(axis=axis).astype(int)) == 1)) for axis in (0, 1)]
        assert counts == [36, 24]

    def test_none_is_drawn_where_nothing_is_known(self) -> None:
        flow = np.full((240, 360, 2), np.nan, np.float32)
        assert not changed(flow).any()
        flow[:, :100] = 1, 0
        assert changed(flow)[:, :90].any()
        assert not changed(flow)[:, 130:].any()

    def test_a_field_smaller_than_the_picture_covers_it(self) -> None:
        columns = np.nonzero(changed(np.ones((24, 36, 2), np.float32)))[1]
        assert columns.min() < 20
        assert columns.max() > 340

    def test_other_channels(self) -> None:
        with pytest.raises(fi.InputError, match=r"arrows need a flow of shape \(H, W, 2\)"):
            draw_arrows(GREY, np.zeros((240, 360, 1), np.float32), GRID)


@pytest.mark.parametrize(
    ("value", "rounded"), [(12.6, 10), (10, 10), (9.99, 5), (0.049, 0.02), (5e6, 5e6), (1.9e-3, 1e-3)]
)
def test_key_lengths_are_round(value: float, rounded: float) -> None:
    assert round_length(value) == pytest.approx(rounded)


def test_the_key_has_an_arrow_of_the_length_it_names() -> None:
    key, wide = (arrow_key(10.0, length, 20, 600) for length in (40.0, 80.0))
    assert key.shape == wide.shape
    ink = [np.nonzero((x[:, :90] < 60).all(axis=2))[1] for x in (key, wide)]
    assert np.ptp(ink[0]) == pytest.approx(40, abs=5)


class TestFieldPicture:
    def field(self, channels: int = 2) -> npt.NDArray[np.float32]:
        return np.random.default_rng(0).normal(size=(60, 80, channels)).astype(np.float32) * 5

    @pytest.mark.parametrize("channels", [1, 2, 3])
    @pytest.mark.parametrize("image", [None, np.full((60, 80, 3), 200, np.uint8), np.full((60, 80), 0.3, np.float32)])
    def test_any_field_over_any_image(self, channels: int, image: npt.NDArray[np.uint8] | None) -> None:
        drawn = field_picture(self.field(channels), "a.npy", image)
        assert drawn.dtype == np.uint8
        assert drawn.std() > 10

    def test_unknown_pixels_look_unlike_any_known_ones(self) -> None:
        full, holed = self.field(), self.field()
        holed[20:40, 20:60] = np.nan
        for image in (None, np.full((60, 80, 3), 200, np.uint8)):
            pictures = [field_picture(x, "a", image, high=10.0) for x in (full, holed)]
            differ = (pictures[0] != pictures[1]).any(axis=2)
            assert differ.sum() > 0.9 * 20 * 40 * 8**2  # enlarged eight times
        (grey,) = np.unique(np.ptp(pictures[1][300:400, 300:400].astype(int), axis=2))
        assert grey == 0

    def test_points_of_a_sparse_field_are_dots(self) -> None:
        sparse = np.full((400, 600, 2), np.nan, np.float32)
        sparse[::20, ::20] = 5, 0
        colourful = np.ptp(field_picture(sparse, "a", high=5.0)[100:500].astype(int), axis=2) > 100
        assert colourful.sum() > 4 * (400 // 20) * (600 // 20)

    @pytest.mark.parametrize("size", [(1, 1), (3, 2000), (700, 2100)])
    def test_any_size(self, size: tuple[int, int]) -> None:
        drawn = field_picture(np.ones((*size, 2), np.float32), "a", arrows=True)
        assert max(drawn.shape) < LONGEST + 600

    def test_nothing_known(self) -> None:
        nothing = np.full((10, 12, 2), np.nan, np.float32)
        assert field_picture(nothing, "a", arrows=True).std() > 3

    def test_bad_arguments(self) -> None:
        with pytest.raises(fi.InputError, match="2 channels"):
            field_picture(self.field(1), "a", arrows=True)
        with pytest.raises(fi.InputError, match="size of the field"):
            field_picture(self.field(), "a", np.zeros((5, 5, 3), np.uint8))
        with pytest.raises(fi.InputError, match="max must be"):
            field_picture(self.field(), "a", high=0.0)
