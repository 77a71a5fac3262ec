import numpy as np
import pytest

from flowinpaint.errors import InputError
from flowinpaint.viz.sheet import contact_sheet, preview
from helpers import random_field


class TestContactSheet:
    def test_the_pictures_are_there_untouched(self) -> None:
        red, blue = np.full((50, 300, 3), (255, 0, 0), np.uint8), np.full((40, 300, 3), (0, 0, 255), np.uint8)
        sheet = contact_sheet([("red\nsmall print", red), None, ("blue", blue)], columns=2)
        for colour, area in (((255, 0, 0), 50 * 300), ((0, 0, 255), 40 * 300)):
            assert (sheet == colour).all(axis=2).sum() == area
        assert sheet.dtype == np.uint8

    def test_titles_are_written_and_long_ones_fit(self) -> None:
        panel = np.full((50, 300, 3), 238, np.uint8)
        short, long = (contact_sheet([(title, panel)], 1) for title in ("A", "a very long title " * 9))
        assert short.min() < 100
        assert long.shape == short.shape
        assert (long[:, -5:] == 238).all()

    def test_bad_inputs_are_named(self) -> None:
        with pytest.raises(InputError, match="panels and columns must be at least 1, got 0 and 2"):
            contact_sheet([], 2)


class TestPreview:
    @pytest.mark.parametrize("size", [(1, 1), (1, 40), (40, 1), (20, 30), (250, 300)])
    @pytest.mark.parametrize("channels", [1, 2, 3])
    def test_any_size_with_and_without_truth(self, size: tuple[int, int], channels: int) -> None:
        image, flow, mask = random_field(*size, channels)
        without = preview(image, flow, mask, {"one": flow})
        with_truth = preview(image, flow, mask, {"one": (flow + 1, "0.3 s"), "two": flow}, flow)
        for sheet in (without, with_truth):
            assert sheet.dtype == np.uint8
            assert 400 < sheet.shape[1] <= 2400
        assert with_truth.shape[0] > without.shape[0] / 2

    def test_large_frames_are_shrunk(self) -> None:
        image, flow, mask = random_field(900, 1600)
        assert preview(image, flow, mask, {"one": flow}).shape[1] <= 2400

    @pytest.mark.parametrize("methods", range(9))
    def test_any_number_of_methods(self, methods: int) -> None:
        image, flow, mask = random_field(30, 250)
        results = {f"method {i}": flow + i for i in range(methods)}
        assert preview(image, flow, mask, results, flow).shape[1] <= 2400
        assert preview(image, flow, mask, results).shape[1] <= 2400

    def test_the_kinds_of_image_agree(self) -> None:
        image, flow, mask = random_field(30, 40)
        grey = image[..., 0]
        expected = preview(grey, flow, mask, {"one": flow})
        unit = (grey / 255).astype(np.float32)
        for same in (grey[..., None], np.stack([grey] * 3, axis=2), grey / 255, unit):
            assert np.array_equal(preview(same, flow, mask, {"one": flow}), expected)

    def test_what_is_not_given_does_not_matter(self) -> None:
        image, flow, mask = random_field(30, 40)
        sparse = np.where(mask[..., None], flow, np.nan)
        one, other = (preview(image, f, mask, {"one": flow}) for f in (flow, sparse))
        assert np.array_equal(one, other)

    def test_holes_in_truth_and_result_are_drawn(self) -> None:
        image, flow, mask = random_field(30, 40)
        truth, result = flow.copy(), flow.copy()
        truth[:5], result[20:] = np.nan, np.nan
        preview(image, flow, mask, {"one": result}, truth)

    @pytest.mark.parametrize("truth", [False, True])
    def test_expected_errors_are_drawn_of_the_results_that_have_them(self, truth: bool) -> None:
        image, flow, mask = random_field(30, 40)
        given = flow if truth else None
        one, two = (dict.fromkeys(names, flow + 1) for names in (["one"], ["one", "two"]))
        small, large = (np.linspace(0, top, mask.size, dtype=np.float32).reshape(mask.shape) for top in (1, 4))
        for results in (one, two):
            drawn = [
                preview(image, flow, mask, results, given, {"one": error}) for error in (small, large, large[::-1])
            ]
            assert drawn[0].size > preview(image, flow, mask, results).size
            assert np.array_equal(
                preview(image, flow, mask, results, given, {"one": None}), preview(image, flow, mask, results, given)
            )
            infinite = preview(image, flow, mask, results, given, {"one": np.where(mask, 0, np.inf)})
            assert np.array_equal(
                infinite, preview(image, flow, mask, results, given, {"one": np.where(mask, 0, np.nan)})
            )
            assert len({sheet.tobytes() for sheet in drawn}) == 3  # the key tells large from small, the map where

    @pytest.mark.parametrize("truth", [False, True])
    def test_the_judgement_is_drawn_where_vectors_are_given(self, truth: bool) -> None:
        image, flow, mask = random_field(60, 80)
        given = flow if truth else None
        right, wrong = (np.where(mask, np.float32(p), np.nan) for p in (1, 0))
        plain = preview(image, flow, mask, {"one": flow}, given)
        drawn = [preview(image, flow, mask, {"one": flow}, given, inliers=p) for p in (right, wrong, 1 - right)]
        assert drawn[0].size > plain.size
        assert drawn[0].shape[1] <= 2400
        assert not np.array_equal(drawn[0], drawn[1])
        assert np.array_equal(drawn[1], drawn[2])
        elsewhere = np.where(mask, right, 0.3)  # what is said of vectors that are not given does not matter
        assert np.array_equal(preview(image, flow, mask, {"one": flow}, given, inliers=elsewhere), drawn[0])

    def test_a_right_vector_is_red_and_a_wrong_one_blue(self) -> None:
        mask = np.ones((60, 80), np.bool_)
        grey, zero = np.full((60, 80), 128, np.uint8), np.zeros((60, 80, 2), np.float32)
        means = [
            preview(grey, zero, mask, {"one": zero}, inliers=np.full((60, 80), p, np.float32)).mean((0, 1))
            for p in (0.0, 1.0)
        ]
        assert means[0][2] > means[1][2]
        assert means[1][0] > means[0][0]

    def test_some_vectors_may_have_no_judgement(self) -> None:
        image, flow, mask = random_field(30, 40)
        some = np.where(mask & (np.arange(40) < 20), np.float32(0.9), np.float32(np.nan))
        preview(image, flow, mask, {"one": flow}, inliers=some)
        preview(image, flow, mask, {"one": flow}, inliers=np.full(mask.shape, np.nan, np.float32))

    @pytest.mark.parametrize("results", [0, 1, 2, 7])
    def test_the_judgement_fits_with_any_number_of_results(self, results: int) -> None:
        image, flow, mask = random_field(30, 40, 1)
        fields = {f"method {i}": flow + i for i in range(results)}
        sheet = preview(image, flow, mask, fields, flow, inliers=np.where(mask, 0.5, np.nan))
        assert 400 < sheet.shape[1] <= 2400

    def test_bad_results_are_named(self) -> None:
        image, flow, mask = random_field(30, 40)
        with pytest.raises(InputError, match="expected must have names of results, got 'two'"):
            preview(image, flow, mask, {"one": flow}, expected={"two": flow[..., 0]})
        with pytest.raises(InputError, match=r"expected must have shape .*, got \(30, 40, 2\) for 'one'"):
            preview(image, flow, mask, {"one": flow}, expected={"one": flow})
        with pytest.raises(InputError, match="results and truth must have the shape of flow"):
            preview(image, flow, mask, {"one": flow[..., :1]})
        for bad in (flow, flow[..., 0][1:], flow[0, 0]):
            with pytest.raises(InputError, match=r"inliers must have shape \(30, 40\), got "):
                preview(image, flow, mask, {"one": flow}, inliers=bad)
