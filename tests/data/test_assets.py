import importlib.util
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import pytest

from flowinpaint.data import assets
from flowinpaint.data import procedural_pictures as procedural
from flowinpaint.data.assets import Source, build_bank, find_sources, segment, spread_labels, without_slivers
from flowinpaint.data.bank import KINDS, bank_picture, read_bank, unpack
from flowinpaint.errors import InputError
from helpers import reference


@pytest.fixture(autouse=True)
def few_drawn_pictures(monkeypatch: pytest.MonkeyPatch) -> None:
    for kind in KINDS:
        monkeypatch.setitem(procedural.COUNTS, kind, 12)
        monkeypatch.setitem(procedural.SIDES, kind, 64)


def write(path: Path, pixels: Any) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    assert cv2.imwrite(str(path), pixels[..., [2, 1, 0, 3][: pixels.shape[2]]] if pixels.ndim == 3 else pixels)
    return path


def halves(height: int = 40, width: int = 60) -> Any:
    """A picture, the left half red and the right half blue."""
    pixels = np.zeros((height, width, 3), np.uint8)
    pixels[:, : width // 2, 0], pixels[:, width // 2 :, 2] = 200, 200
    return pixels


def labels(height: int = 40, width: int = 60, dtype: Any = np.uint8) -> Any:
    return (np.arange(width) >= width // 2).astype(dtype)[None].repeat(height, 0)


def build(folder: Path, **folders: str) -> tuple[Any, dict[str, int], list[str]]:
    skipped: list[str] = []
    places = {kind: [folder / name] for kind, name in folders.items()}
    counts = build_bank(places, folder / "bank.safetensors", jobs=2, skipped=skipped.append)
    return read_bank(folder / "bank.safetensors"), counts, skipped


def test_maps_are_found_beside_their_photos(tmp_path: Path) -> None:
    names = ["a.jpg", "a_coarse.png", "a_fine.png", "b.jpg", "b.png", "sub/c.png", "sub/c_fine.png", "d.webp", "e.png"]
    for name in names:
        write(tmp_path / name, halves())
    (tmp_path / "notes.txt").write_text("no picture")
    found = find_sources("photos", [tmp_path])
    paths = {
        "a.jpg": ("a_coarse.png", "a_fine.png"),
        "b.jpg": ("b.png",),
        "d.webp": (),
        "e.png": (),
        "sub/c.png": ("sub/c_fine.png",),
    }
    expected = [Source("photos", tmp_path / name, tuple(tmp_path / m for m in maps)) for name, maps in paths.items()]
    assert found == expected
    assert [s.image.name for s in find_sources("materials", [tmp_path])] == [Path(n).name for n in sorted(names)]


def test_a_photo_enters_once_with_each_label_map(tmp_path: Path) -> None:
    write(tmp_path / "in/a.jpg", halves())
    write(tmp_path / "in/a_coarse.png", labels())
    write(tmp_path / "in/a_fine.png", labels(dtype=np.uint16) * 40_000 + np.arange(40)[:, None].astype(np.uint16) // 10)
    bank, counts, skipped = build(tmp_path, photos="in")
    assert counts["photos"] == 2
    assert skipped == []
    coarse, fine = (bank_picture(bank, "photos", n).extra for n in (0, 1))
    assert len(np.unique(coarse)) == 2
    assert len(np.unique(fine)) == 8
    for extra in (coarse, fine):
        assert (extra[0, :30] == extra[0, 0]).all()
        assert (extra[0, 30:] == extra[0, 30]).all()
        assert extra[0, 0] != extra[0, 30]


def test_a_photo_without_labels_is_segmented_at_its_edges_and_always_alike(tmp_path: Path) -> None:
    pytest.importorskip("skimage")
    write(tmp_path / "in/a.png", halves(80, 120))
    extra = bank_picture(build(tmp_path, photos="in")[0], "photos", 0).extra
    assert len(np.unique(extra)) == 2
    assert (extra[:, :59] == extra[0, 0]).all()
    assert (extra[:, 61:] == extra[0, 61]).all()
    again = bank_picture(build(tmp_path, photos="in")[0], "photos", 0).extra
    assert (again == extra).all()


def test_segments_get_larger_with_the_draw() -> None:
    pytest.importorskip("skimage")
    noise = np.random.default_rng(0).normal(128, 40, (16, 16, 3)).clip(0, 255).astype(np.uint8)
    photo = np.asarray(cv2.resize(noise, (128, 128), interpolation=cv2.INTER_CUBIC), np.uint8)
    fine, coarse = (len(np.unique(segment(photo, draw))) for draw in (0.0, 1.0))
    assert 1 < coarse < fine


def test_without_scikit_image_only_photos_with_labels_are_taken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(assets, "is_installed", lambda feature: False)
    assert importlib.util.find_spec("cv2") is not None
    write(tmp_path / "in/a.jpg", halves())
    write(tmp_path / "in/a.png", labels())
    assert build(tmp_path, photos="in")[1]["photos"] == 1
    write(tmp_path / "in/b.jpg", halves())
    with pytest.raises(InputError, match=r"b\.jpg has no label map.*pip install scikit-image"):
        build(tmp_path, photos="in")


@pytest.mark.parametrize("count", [1, 2, 200, 256])
def test_labels_stay_apart(count: int) -> None:
    numbers = np.random.default_rng(0).permutation(60_000)[:count].reshape(1, -1)
    assert len(np.unique(spread_labels(numbers))) == count


@pytest.mark.parametrize("way", ["alpha", "palette", "silhouette"])
def test_a_cutout_is_cut_to_its_silhouette_and_loses_its_background(tmp_path: Path, way: str) -> None:
    y, x = np.mgrid[:100, :120]
    inside = np.hypot(y - 40, x - 70) < 20
    colour = np.where(inside[..., None], (200, 30, 30), (0, 255, 0)).astype(np.uint8)
    alpha = np.where(inside, 255, 0).astype(np.uint8)
    if way == "silhouette":
        write(tmp_path / "in/a.bmp", colour)
        write(tmp_path / "in/a.png", alpha)
    elif way == "alpha":
        write(tmp_path / "in/a.png", np.dstack([colour, alpha]))
    else:
        write(tmp_path / "in/a.png", np.dstack([colour, alpha]).astype(np.uint16) * 257)
    bank, counts, skipped = build(tmp_path, cutouts="in")
    assert (counts["cutouts"], skipped) == (1, [])
    cut = bank_picture(bank, "cutouts", 0)
    assert cut.extra.shape == (44, 44)  # 39 and a margin of 2 px on each side, in whole fours
    assert (cut.extra > 0).sum() == inside.sum()
    for _, height, width in bank.cutouts[0].tolist():
        assert height == width
    offset = int(bank.cutouts[0, 0, 0])
    end = int(bank.cutouts[0, -1, 0]) + 11 * 11
    assert unpack(bank.pixels[offset:end])[0][:, 1].max() < 60  # no green, at any size


def test_large_pictures_are_reduced_with_what_belongs_to_them(tmp_path: Path) -> None:
    write(tmp_path / "photos/a.jpg", halves(100, 300))
    write(tmp_path / "photos/a.png", labels(100, 300))
    write(tmp_path / "textures/t.png", halves(300, 90))
    write(tmp_path / "cutouts/c.png", np.dstack([halves(200, 300), np.full((200, 300), 255, np.uint8)]))
    out = tmp_path / "bank.safetensors"
    folders = {"photos": [tmp_path / "photos"], "materials": [tmp_path / "textures"], "cutouts": [tmp_path / "cutouts"]}
    build_bank(folders, out, longest=64)
    bank = read_bank(out)
    assert bank.photos[0, 0].tolist()[1:] == [20, 64]
    assert bank.materials[0, 0].tolist()[1:] == [64, 16]
    assert bank.cutouts[0, 0].tolist()[1:] == [48, 68]
    colour, extra = bank_picture(bank, "photos", 0)
    assert (extra[:, :32] == extra[0, 0]).all()
    assert (extra[:, 32:] == extra[0, 32]).all()
    assert colour[:, :30, 0].min() > 150
    assert colour[:, 34:, 2].min() > 150


def test_a_cutout_that_is_reduced_does_not_mix_with_its_background(tmp_path: Path) -> None:
    inside = (np.arange(150) >= 50)[None].repeat(150, 0)  # whose border falls inside of a block of 4 pixels
    colour = np.where(inside[..., None], (200, 30, 30), (0, 255, 0)).astype(np.uint8)
    write(tmp_path / "in/a.png", np.dstack([colour, np.where(inside, 255, 0).astype(np.uint8)]))
    build_bank({"cutouts": [tmp_path / "in"]}, tmp_path / "bank.safetensors", longest=37)
    assert bank_picture(read_bank(tmp_path / "bank.safetensors"), "cutouts", 0).colour[..., 1].max() < 60


def test_the_silhouette_of_a_webp_is_its_alpha(tmp_path: Path) -> None:
    inside = labels()
    (tmp_path / "in").mkdir()
    write(tmp_path / "in/a.webp", np.dstack([halves(), inside * np.uint8(255)]))
    bank, counts, _ = build(tmp_path, cutouts="in")
    assert counts["cutouts"] == 1
    assert (bank_picture(bank, "cutouts", 0).extra > 0).sum() == inside.sum()


def test_bad_files_are_skipped_by_name_and_the_rest_is_taken(tmp_path: Path) -> None:
    write(tmp_path / "photos/good.jpg", halves())
    write(tmp_path / "photos/good.png", labels())
    write(tmp_path / "photos/size.jpg", halves())
    write(tmp_path / "photos/size.png", labels(30))
    write(tmp_path / "photos/colours.jpg", halves())
    write(tmp_path / "photos/colours.png", halves())
    write(tmp_path / "photos/small.jpg", halves(8, 40))
    write(tmp_path / "photos/small.png", labels(8, 40))
    (tmp_path / "photos/text.jpg").write_text("hello")
    write(tmp_path / "photos/text.png", labels())
    broken = write(tmp_path / "photos/broken.bmp", halves())
    broken.write_bytes(broken.read_bytes()[:2000])
    write(tmp_path / "photos/broken.png", labels())
    write(tmp_path / "cutouts/opaque.png", halves())
    write(tmp_path / "cutouts/nothing.png", np.zeros((40, 40, 4), np.uint8))
    write(tmp_path / "cutouts/good.png", np.full((40, 40, 4), 255, np.uint8))
    _, counts, skipped = build(tmp_path, photos="photos", cutouts="cutouts")
    assert (counts["photos"], counts["cutouts"]) == (1, 1)
    phrases = {
        "size.png": f"must be 60x40 pixels as {tmp_path / 'photos/size.jpg'}, got 60x30",
        "colours.png": "must be a grey map of labels, got colours",
        "small.jpg": "px, got 40x8",
        "text.jpg": "must be an image in one of the formats",
        "broken.bmp": "truncated",
        "opaque.png": "must have an alpha channel",
        "nothing.png": "its silhouette must not be empty",
    }
    assert len(skipped) == len(phrases)
    for name, phrase in phrases.items():
        assert [phrase in sentence for sentence in skipped if name in sentence] == [True]


def test_kinds_without_a_folder_are_drawn(tmp_path: Path) -> None:
    write(tmp_path / "in/a.png", halves())
    calls: list[tuple[int, int]] = []
    counts = build_bank(
        {"materials": [tmp_path / "in"]}, tmp_path / "b.safetensors", progress=lambda *c: calls.append(c)
    )
    assert counts == {"photos": 12, "materials": 1, "cutouts": 12}
    assert calls == [(1, 1)]
    assert len(read_bank(tmp_path / "b.safetensors").photos) == 12


def test_what_cannot_be_built_is_an_error_and_leaves_nothing(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    out = tmp_path / "bank.safetensors"
    with pytest.raises(InputError, match="folders must have a folder for at least one of"):
        build_bank({}, out)
    with pytest.raises(InputError, match=r"textures must contain pictures .*, got none in .*in"):
        build_bank({"materials": [tmp_path / "in"]}, out)
    with pytest.raises(InputError, match=r"cutouts must be a folder of pictures, got .*nowhere, which does not exist"):
        build_bank({"cutouts": [tmp_path / "nowhere"]}, out)
    (tmp_path / "in/a.png").write_text("hello")
    with pytest.raises(InputError, match=r"got .*a\.png, which is a file"):
        build_bank({"cutouts": [tmp_path / "in/a.png"]}, out)
    with pytest.raises(InputError, match=r"textures must contain a usable picture, got none in .*in"):
        build_bank({"materials": [tmp_path / "in"]}, out)
    with pytest.raises(InputError, match="longest must be at least 16 px, got 8"):
        build_bank({"materials": [tmp_path / "in"]}, out, longest=8)
    with pytest.raises(InputError, match=r"the folder .*none does not exist"):
        build_bank({"materials": [tmp_path / "in"]}, tmp_path / "none" / "bank.safetensors")

    def interrupt(sentence: str) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        build_bank({"materials": [tmp_path / "in"]}, out, skipped=interrupt)
    assert [path.name for path in tmp_path.iterdir()] == ["in"]
    with pytest.raises(InputError, match=r"must end in \.safetensors"):
        build_bank({"materials": [tmp_path / "in"]}, tmp_path / "bank.zip")


def test_an_older_bank_survives_a_build_that_fails(tmp_path: Path) -> None:
    write(tmp_path / "in/a.png", halves())
    build(tmp_path, materials="in")
    before = (tmp_path / "bank.safetensors").read_bytes()
    (tmp_path / "in/a.png").write_text("hello")
    with pytest.raises(InputError, match="must contain a usable picture"):
        build(tmp_path, materials="in")
    assert (tmp_path / "bank.safetensors").read_bytes() == before


def test_slivers_go_to_their_neighbours() -> None:
    found = np.array([[5, 5, 5, 5, 9, 9, 7, 8, 3, 3, 3, 3]] * 6)
    assert (without_slivers(found) == [5, 5, 5, 5, 5, 5, 3, 3, 3, 3, 3, 3]).all()
    stripes = np.arange(8)[None].repeat(8, 0)
    assert (without_slivers(stripes) == stripes).all()


def test_real_pictures_keep_their_segments_and_silhouettes(tmp_path: Path) -> None:
    source = reference("assets")
    for kind, names in {
        "photos": ["100007.jpg", "100007_coarse.png", "100007_fine.png"],
        "cutouts": ["0000.jpg", "0000.png"],
    }.items():
        (tmp_path / kind).mkdir()
        folder = "human_segments" if kind == "photos" else kind
        for name in names:
            (tmp_path / kind / name).write_bytes((source / folder / name).read_bytes())
    bank, counts, skipped = build(tmp_path, photos="photos", cutouts="cutouts")
    assert (counts["photos"], counts["cutouts"], skipped) == (2, 1, [])
    assert [len(np.unique(bank_picture(bank, "photos", n).extra)) for n in (0, 1)] == [8, 17]
    mask = cv2.imread(str(tmp_path / "cutouts/0000.png"), cv2.IMREAD_GRAYSCALE)
    assert mask is not None
    assert (bank_picture(bank, "cutouts", 0).extra > 0).sum() == (np.asarray(mask) > 0).sum()
