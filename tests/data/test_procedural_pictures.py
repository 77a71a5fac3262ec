import numpy as np
import pytest
import torch

from flowinpaint.data.bank import KINDS, MIN_SIDE, STEP, Picture
from flowinpaint.data.procedural_pictures import COUNTS, SIDES, procedural_bank, procedural_pictures
from flowinpaint.errors import InputError


@pytest.fixture(scope="module")
def pictures() -> dict[str, list[Picture]]:
    return procedural_pictures(KINDS)


def test_there_are_as_many_of_each_size_as_promised(pictures: dict[str, list[Picture]]) -> None:
    for kind in KINDS:
        assert len(pictures[kind]) == COUNTS[kind]
        for colour, extra in pictures[kind]:
            assert colour.shape == (*extra.shape, 3)
            if kind == "cutouts":  # cut to their silhouettes
                assert all(n % STEP == 0 and MIN_SIDE <= n <= SIDES[kind] + 2 * STEP for n in extra.shape)
            else:
                assert extra.shape == (SIDES[kind], SIDES[kind])


def test_a_kind_is_the_same_alone_and_with_the_others_but_differs_with_the_seed(
    pictures: dict[str, list[Picture]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(COUNTS, "cutouts", 8)
    alone = procedural_pictures(["cutouts"])
    assert {kind: len(drawn) for kind, drawn in alone.items()} == {"cutouts": 8}
    for one, other in zip(alone["cutouts"], pictures["cutouts"][:8], strict=True):
        assert (one.colour == other.colour).all()
        assert (one.extra == other.extra).all()
    monkeypatch.setitem(COUNTS, "photos", 2)
    other_seed = procedural_pictures(["photos"], seed=1)["photos"]
    assert all((a.colour != b.colour).any() for a, b in zip(other_seed, pictures["photos"], strict=False))


def test_pictures_differ_and_none_is_plain(pictures: dict[str, list[Picture]]) -> None:
    for kind in KINDS:
        assert len({picture.colour.tobytes() for picture in pictures[kind]}) == COUNTS[kind]
    spread = [m.colour.astype(np.float32).mean(2).std() for m in pictures["materials"]]
    assert min(spread) > 1.5
    assert max(spread) > 4 * min(spread)
    assert np.std([m.colour.mean((0, 1)) for m in pictures["materials"]], axis=0).min() > 15


def test_image_edges_lie_at_the_borders_of_segments_and_of_texture_too(pictures: dict[str, list[Picture]]) -> None:
    at_borders, elsewhere = [], []
    for colour, labels in pictures["photos"]:
        assert 2 <= len(np.unique(labels)) <= 256
        step = np.abs(np.diff(colour.astype(np.float32), axis=1)).max(2)
        border = labels[:, 1:] != labels[:, :-1]
        assert border.mean() < 0.2
        at_borders.append(step[border].mean())
        elsewhere.append(step[~border].mean())
    assert np.median(np.array(at_borders) / np.array(elsewhere)) > 2.5
    assert np.median(elsewhere) > 2


def test_labels_are_not_shifted_against_the_image(pictures: dict[str, list[Picture]]) -> None:
    # Anti-aliasing spreads an edge over at most two steps between pixels, around that between the labels.
    before, at, behind = (np.zeros(24) for _ in range(3))
    for n, (colour, labels) in enumerate(pictures["photos"]):
        step = np.abs(np.diff(colour.astype(np.float32), axis=1)).max(2)
        border = (labels[:, 1:] != labels[:, :-1])[:, 2:-2]
        before[n], at[n], behind[n] = (step[:, 2 + s : step.shape[1] - 2 + s][border].mean() for s in (-1, 0, 1))
    assert (at > before).all()
    assert (at > behind).all()


def test_silhouettes_lie_inside_and_have_the_colours_of_their_inside_around_them(
    pictures: dict[str, list[Picture]],
) -> None:
    for colour, extra in pictures["cutouts"]:
        assert set(np.unique(extra)) == {0, 255}
        assert 0.02 < (extra > 0).mean() < 0.95
        assert not (extra[:2].any() or extra[-2:].any() or extra[:, :2].any() or extra[:, -2:].any())
        inside = {tuple(c) for c in colour[extra > 0].tolist()}
        assert {tuple(c) for c in colour[extra == 0].tolist()} <= inside


def test_the_seed_decides_the_bank(monkeypatch: pytest.MonkeyPatch) -> None:
    for kind in KINDS:
        monkeypatch.setitem(COUNTS, kind, 3)
    one, other = procedural_bank(3), procedural_bank(3)
    assert torch.equal(one.pixels, other.pixels)
    assert not torch.equal(one.pixels, procedural_bank(4).pixels)
    assert all(len(getattr(one, kind)) == 3 for kind in KINDS)
    with pytest.raises(InputError, match="seed must be at least 0, got -1"):
        procedural_bank(-1)
