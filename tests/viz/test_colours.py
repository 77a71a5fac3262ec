import colorsys

import cv2
import numpy as np
import numpy.typing as npt
import pytest

from flowinpaint.errors import InputError
from flowinpaint.viz.colours import (
    FieldRange,
    Rgb,
    colour_field,
    draw_given,
    error_map,
    field_range,
    flow_to_rgb,
)
from helpers import random_field


def colours_of_directions(degrees: npt.NDArray[np.float64], magnitude: float = 1.0) -> Rgb:
    """The colours (n, 3) of vectors in these directions, clockwise from the right as y points down."""
    angle = np.deg2rad(degrees)
    flow = magnitude * np.stack([np.cos(angle), np.sin(angle)], axis=-1)[None]
    return flow_to_rgb(flow, max_magnitude=1.0 + 1e-9).reshape(-1, 3)


def hue(rgb: npt.NDArray[np.integer]) -> float:
    """The hue of a colour in degrees."""
    return 360 * colorsys.rgb_to_hsv(*(int(c) / 255 for c in rgb))[0]


class TestWheel:
    def test_the_four_directions_have_the_colours_of_the_published_wheel(self) -> None:
        right, down, left, up = colours_of_directions(np.array([0, 90, 180, 270]))
        assert right.tolist() == [255, 0, 0]
        # 55 colours, 15 of them from red to yellow: a quarter is 13.75 / 15 on the way.
        assert down.tolist() == [255, round(255 * 13.75 / 15), 0]
        # A half is 27.5, 2.5 / 11 from cyan to blue; three quarters are 5.25 / 13 from blue to magenta.
        assert left.tolist() == [0, round(255 * (1 - 2.5 / 11)), 255]
        assert up.tolist() == [round(255 * 5.25 / 13), 0, 255]

    def test_the_hue_turns_once_and_one_way(self) -> None:
        hues = np.unwrap([hue(c) for c in colours_of_directions(np.arange(0, 361, 2.0))], period=360)
        assert (np.diff(hues) > 0).all()
        assert hues[-1] - hues[0] == pytest.approx(360, abs=1e-6)

    def test_there_is_no_seam_anywhere(self) -> None:
        around = colours_of_directions(np.arange(-180, 180, 0.25)).astype(int)
        assert np.abs(np.diff(around, axis=0, append=around[:1])).max() <= 12

    def test_opposite_directions_differ_much_in_hue(self) -> None:
        degrees = np.arange(0, 180, 5.0)
        for one, other in zip(colours_of_directions(degrees), colours_of_directions(degrees + 180), strict=True):
            assert 90 < (hue(one) - hue(other)) % 360 < 270

    def test_rest_is_white_and_speed_saturates(self) -> None:
        lowest = [colours_of_directions(np.array([33.0]), m).min() for m in (0.0, 0.25, 0.5, 0.75, 1.0)]
        assert lowest[0] == 255
        assert lowest[-1] == 0
        assert (np.diff(np.array(lowest, int)) < 0).all()

    def test_beyond_the_range_it_is_darkened(self) -> None:
        assert colours_of_directions(np.array([0.0]), 1.5).tolist() == [[round(0.75 * 255), 0, 0]]


class TestFlowToRgb:
    @pytest.mark.parametrize("channels", [1, 2, 3, 6])
    @pytest.mark.parametrize("dtype", [np.float32, np.float64])
    def test_shape_and_type(self, channels: int, dtype: npt.DTypeLike) -> None:
        rgb = flow_to_rgb(np.random.default_rng(0).normal(size=(5, 9, channels)).astype(dtype))
        assert rgb.shape == (5, 9, 3)
        assert rgb.dtype == np.uint8

    @pytest.mark.parametrize("channels", [1, 2, 3])
    @pytest.mark.parametrize("unknown", [np.nan, np.inf])
    def test_unknown_is_black_and_does_not_set_the_scale(self, channels: int, unknown: float) -> None:
        flow = np.ones((4, 4, channels), np.float32)
        flow[1, 2, 0] = unknown
        black = (flow_to_rgb(flow) == 0).all(axis=2)
        assert black[1, 2]
        assert black.sum() == 1

    def test_nothing_known_is_all_black(self) -> None:
        assert not flow_to_rgb(np.full((3, 4, 2), np.nan)).any()

    def test_rest_alone_is_white(self) -> None:
        assert (flow_to_rgb(np.zeros((3, 4, 2))) == 255).all()

    def test_one_channel_runs_through_turbo(self) -> None:
        ramp = np.linspace(0, 1, 256)[None, :, None]
        bgr = cv2.applyColorMap(np.arange(256, dtype=np.uint8)[None], cv2.COLORMAP_TURBO)
        assert np.array_equal(flow_to_rgb(ramp, max_magnitude=1.0), bgr[..., ::-1])

    def test_more_channels_show_the_norm(self) -> None:
        flow = np.random.default_rng(1).normal(size=(6, 7, 4))
        norm = np.linalg.norm(flow, axis=2, keepdims=True)
        assert np.array_equal(flow_to_rgb(flow), flow_to_rgb(norm))

    @pytest.mark.parametrize("bad", [np.zeros((1, 3, 4, 2)), np.zeros((0, 4, 2)), np.zeros((3, 4, 2), bool)])
    def test_bad_fields_are_named(self, bad: npt.NDArray[np.float64]) -> None:
        with pytest.raises(InputError, match="flow must "):
            flow_to_rgb(bad)

    @pytest.mark.parametrize("bad", [0.0, -1.0, np.nan, np.inf])
    def test_bad_ranges_are_named(self, bad: float) -> None:
        with pytest.raises(InputError, match="max_magnitude must be"):
            flow_to_rgb(np.zeros((3, 4, 2)), bad)


class TestFieldRange:
    def test_flow_starts_at_rest_and_spans_all_fields(self) -> None:
        slow, fast = np.full((9, 9, 2), 3.0), np.full((9, 9, 2), [6.0, 8.0])
        assert field_range(slow, fast) == FieldRange(0.0, 10.0)

    def test_few_huge_vectors_do_not_set_it(self) -> None:
        flow = np.zeros((100, 100, 2))
        flow[..., 0] = np.linspace(0, 1, 100)
        flow[0, :10] = 1e4
        assert field_range(flow).high < 1.3

    def test_one_channel_spans_its_percentiles(self) -> None:
        low, high = field_range(np.linspace(-100, 100, 10001).reshape(1, -1, 1))
        assert [low, high] == pytest.approx([-98, 98])

    @pytest.mark.parametrize("value", [0.0, 5.0, np.nan])
    @pytest.mark.parametrize("channels", [1, 2])
    def test_it_is_never_empty(self, value: float, channels: int) -> None:
        low, high = field_range(np.full((3, 3, channels), value))
        assert high > low

    def test_a_shared_range_gives_equal_vectors_equal_colours(self) -> None:
        one, two = np.full((2, 2, 2), 3.0), np.full((2, 2, 2), 9.0)
        both = field_range(one, two)
        assert np.array_equal(colour_field(np.concatenate([one, two]), both)[:2], colour_field(one, both))
        assert not np.array_equal(colour_field(one, both), flow_to_rgb(one))


class TestErrorMap:
    def test_it_brightens_with_the_error(self) -> None:
        rgb = error_map(np.linspace(0, 10, 50)[None], maximum=10.0)
        assert rgb.shape == (1, 50, 3)
        assert rgb.dtype == np.uint8
        assert (np.diff(rgb.astype(int).sum(axis=2)[0]) > 0).all()
        assert rgb[0, 0].sum() < 10

    def test_unknown_is_grey_and_infinite_the_brightest(self) -> None:
        rgb = error_map(np.array([[0.0, np.nan, np.inf, 5.0]]), maximum=5.0)
        assert rgb[0, 1].tolist() == [128, 128, 128]
        assert np.array_equal(rgb[0, 2], rgb[0, 3])

    def test_no_error_at_all_is_dark(self) -> None:
        assert error_map(np.zeros((3, 3))).max() < 10

    def test_bad_inputs_are_named(self) -> None:
        with pytest.raises(InputError, match="error must have shape"):
            error_map(np.zeros((3, 3, 2)))
        with pytest.raises(InputError, match="maximum must be"):
            error_map(np.zeros((3, 3)), 0.0)


class TestDrawGiven:
    def test_a_vector_is_a_dot_of_its_colour_where_it_is_given(self) -> None:
        image, flow, mask = random_field(60, 80)
        mask[:] = False
        mask[20, 30] = True
        flow[20, 30] = (3, 0)
        picture = draw_given(image, flow, mask)
        assert picture[20, 30].tolist() == [255, 0, 0]
        is_coloured = np.ptp(picture.astype(int), axis=2) > 0
        assert 1 < is_coloured.sum() < 40
        assert not is_coloured[:16].any()

    def test_given_everywhere_it_is_the_field_itself(self) -> None:
        image, flow, mask = random_field(20, 30)
        assert np.array_equal(draw_given(image, flow, np.ones_like(mask)), flow_to_rgb(flow))

    def test_nothing_given_leaves_the_dimmed_image(self) -> None:
        image, flow, mask = random_field(20, 30)
        picture = draw_given(image, flow, np.zeros_like(mask))
        assert picture.max() < 130
        assert np.ptp(picture.astype(int), axis=2).max() == 0
        assert np.array_equal(picture, draw_given(image, np.full_like(flow, np.nan), mask))

    def test_bad_inputs_are_named(self) -> None:
        image, flow, mask = random_field(20, 30)
        with pytest.raises(InputError, match=r"mask must be .*, got uint8"):
            draw_given(image, flow, mask.astype(np.uint8))  # type: ignore[arg-type,unused-ignore]
        with pytest.raises(InputError, match=r"mask must be .*, got bool"):
            draw_given(image, flow, mask[1:])
        with pytest.raises(InputError, match="flow must have"):
            draw_given(image, flow[1:], mask)
        with pytest.raises(InputError, match=r"image must be .*, got int64"):
            draw_given(image.astype(np.int64), flow, mask)
        with pytest.raises(InputError, match="image must have shape"):
            draw_given(image[..., :2], flow, mask)
