import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from safetensors.numpy import load_file, save_file

from flowinpaint.data.bank import (
    DISTANCE_UNIT,
    DISTANCE_ZERO,
    KINDS,
    MAX_SIDE,
    SIZES,
    PackedPicture,
    Picture,
    PictureBank,
    bank_picture,
    in_threads,
    make_bank,
    pack_picture,
    read_bank,
    save_pictures,
    unpack,
)
from flowinpaint.errors import FileFormatError, InputError, MissingFileError
from flowinpaint.io.budget import reading
from flowinpaint.io.tensors import LARGEST_HEADER
from scene_bank import pack, save_bank

METADATA = {"flowinpaint.bank": "1"}


def smooth(height: int, width: int, seed: int = 0) -> Any:
    """Colours (H, W, 3) that WebP changes little."""
    y, x = np.mgrid[:height, :width]
    return np.stack([60 + x, 60 + y, np.full_like(x, 40 + 20 * (seed % 8))], -1).astype(np.uint8)


def disc(height: int, width: int) -> Any:
    y, x = np.mgrid[:height, :width]
    radius = 0.4 * min(height, width)
    return np.where(np.hypot(y - (height - 1) / 2, x - (width - 1) / 2) < radius, 255, 0).astype(np.uint8)


def pictures() -> dict[str, list[Picture]]:
    labels = np.random.default_rng(0).integers(0, 256, (32, 48), np.uint8)
    return {
        "photos": [
            Picture(smooth(32, 48), labels),
            Picture(smooth(32, 48), labels.T[:16].repeat(2, 0).repeat(2, 1)[:, :48]),
        ],
        "materials": [Picture(smooth(16, 20, i), np.zeros((16, 20), np.uint8)) for i in range(3)],
        "cutouts": [Picture(smooth(64, 80, 5), disc(64, 80))],
    }


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "bank.safetensors"
    save_bank(make_bank(pictures()), path)
    return path


@given(st.integers(0, 2**32 - 1))
def test_packing_keeps_all_bytes(seed: int) -> None:
    values = np.random.default_rng(seed).integers(0, 256, (3, 5, 4), np.uint8)
    colour, extra = unpack(pack(torch.from_numpy(values[..., :3]), torch.from_numpy(values[..., 3])))
    assert (colour.reshape(3, 5, 3).numpy() == values[..., :3]).all()
    assert (extra.reshape(3, 5).numpy() == values[..., 3]).all()


def test_a_bank_holds_every_picture_at_three_sizes_that_tile_its_pixels() -> None:
    given_pictures = pictures()
    bank = make_bank(given_pictures)
    end = 0
    for kind in KINDS:
        table = getattr(bank, kind)
        assert table.shape == (len(given_pictures[kind]), SIZES, 3)
        assert table.dtype == torch.int32
        for number, picture in enumerate(given_pictures[kind]):
            for size, (offset, height, width) in enumerate(table[number].tolist()):
                assert offset == end
                assert (height, width) == tuple(n // 2**size for n in picture.extra.shape)
                end += height * width
            kept = bank_picture(bank, kind, number)
            assert (kept.colour == picture.colour).all()
            assert (kept.extra == picture.extra).all()
    assert end == bank.pixels.numel()


def level(bank: PictureBank, kind: str, number: int, size: int) -> tuple[Any, Any]:
    offset, height, width = getattr(bank, kind)[number, size].tolist()
    colour, extra = unpack(bank.pixels[offset : offset + height * width].view(height, width))
    return colour.numpy(), extra.numpy()


def test_smaller_sizes_average_colours_and_pick_labels() -> None:
    given_pictures = pictures()
    bank = make_bank(given_pictures)
    colour, labels = given_pictures["photos"][0]
    for size, factor in ((1, 2), (2, 4)):
        small, extra = level(bank, "photos", 0, size)
        mean = colour.reshape(32 // factor, factor, 48 // factor, factor, 3).mean((1, 3))
        assert np.abs(small - mean).max() <= 0.5
        blocks = labels.reshape(32 // factor, factor, 48 // factor, factor)
        assert (blocks == extra[:, None, :, None]).any((1, 3)).all()


@pytest.mark.parametrize("size", range(SIZES))
def test_the_distance_of_a_cutout_is_that_from_its_border_in_pixels_of_its_size(size: int) -> None:
    side, radius = 128, 40.0
    y, x = np.mgrid[:side, :side] - (side - 1) / 2
    inside = np.where(np.hypot(y, x) < radius, 255, 0).astype(np.uint8)
    given_pictures = {**pictures(), "cutouts": [Picture(smooth(side, side), inside)]}
    _, extra = level(make_bank(given_pictures), "cutouts", 0, size)
    small = side >> size
    v, u = (np.mgrid[:small, :small] - (small - 1) / 2) * 2**size
    exact = np.clip((radius - np.hypot(v, u)) / 2**size, -31.75, 31.75)
    # Pixels in or out tell the border to about half a pixel; averages smooth the tip in the middle.
    assert np.abs((extra - DISTANCE_ZERO) / DISTANCE_UNIT - exact).max() < 0.8


def test_a_saved_bank_comes_back_with_nearly_its_colours_and_exactly_the_rest(file: Path) -> None:
    before, after = make_bank(pictures()), read_bank(file)
    for kind in KINDS:
        assert torch.equal(getattr(before, kind), getattr(after, kind))
    (colour, extra), (read_colour, read_extra) = unpack(before.pixels), unpack(after.pixels)
    assert torch.equal(extra, read_extra)
    assert (colour - read_colour).abs().mean() < 2
    assert (colour - read_colour).abs().max() < 24


def test_equal_colours_are_stored_once(tmp_path: Path) -> None:
    packed = {kind: [pack_picture(kind, picture) for picture in pictures()[kind]] for kind in KINDS}
    assert packed["photos"][0].colour == packed["photos"][1].colour
    save_pictures(packed, tmp_path / "bank.safetensors")
    length = len(load_file(tmp_path / "bank.safetensors")["data"])
    assert length == sum(map(len, {part for kind in KINDS for picture in packed[kind] for part in picture}))
    assert length < sum(len(part) for kind in KINDS for picture in packed[kind] for part in picture)


def with_table(kind: str, row: int, column: int, value: int) -> Callable[[dict[str, Any]], None]:
    def change(arrays: dict[str, Any]) -> None:
        arrays[kind][row, column] = value

    return change


def start_at_the_last_byte(arrays: dict[str, Any]) -> None:
    arrays["photos"][1, 2] = arrays["data"].size - 1


def replaced(name: str, value: Any) -> Callable[[dict[str, Any]], None]:
    return lambda arrays: arrays.__setitem__(name, value)


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (with_table("photos", 0, 0, -1), "photos must point inside its"),
        (with_table("photos", 1, 1, 10**9), "photos must point inside its"),
        (start_at_the_last_byte, "photos must point inside its"),
        (with_table("cutouts", 0, 2, 2**63 - 1), "cutouts must point inside its"),
        (with_table("cutouts", 0, 3, 2**63 - 1), "cutouts must point inside its"),
        (with_table("cutouts", 0, 1, -5), "cutouts must point inside its"),
        (with_table("cutouts", 0, 3, 0), "cutouts must have an extra for each picture"),
        (with_table("materials", 0, 3, 7), "materials must have no extras"),
        (with_table("photos", 0, 1, 0), "photos[0]: must be an image in one of the formats"),
        (with_table("photos", 0, 1, 20), "photos[0]: "),
        (replaced("photos", np.zeros((0, 4), np.int64)), "photos must be I64 (N, 4), N > 0, got I64 (0, 4)"),
        (replaced("photos", np.zeros((3, 5), np.int64)), "photos must be I64 (N, 4), N > 0, got I64 (3, 5)"),
        (replaced("photos", np.zeros((3, 4), np.int32)), "photos must be I64 (N, 4), N > 0, got I32 (3, 4)"),
        (replaced("data", np.zeros(9, np.int8)), "data must be U8 (N,), got I8 (9,)"),
        (replaced("more", np.zeros(9, np.int8)), "must hold ['cutouts', 'data'"),
        (lambda arrays: arrays.pop("cutouts"), "must hold ['cutouts', 'data'"),
    ],
)
def test_a_false_table_is_refused(file: Path, change: Callable[[dict[str, Any]], Any], sentence: str) -> None:
    arrays = load_file(file)
    change(arrays)
    save_file(arrays, file, METADATA)
    with pytest.raises(FileFormatError) as caught:
        read_bank(file)
    assert sentence in str(caught.value)
    assert str(file) in str(caught.value)


def packed(kind: str, height: int, width: int, inner: tuple[int, int] | None = None) -> PackedPicture:
    whole = pack_picture(kind, Picture(smooth(height, width), disc(height, width)))
    return (
        whole
        if inner is None
        else PackedPicture(whole.colour, pack_picture(kind, Picture(smooth(*inner), disc(*inner))).extra)
    )


@pytest.mark.parametrize(
    ("kind", "picture", "sentence"),
    [
        ("photos", packed("photos", 34, 32), "must have sides of 16 to 8192 px, multiples of 4, got 32x34"),
        ("cutouts", packed("cutouts", 32, 12), "got 12x32"),
        ("materials", packed("materials", MAX_SIDE + 4, 16), f"got 16x{MAX_SIDE + 4}"),
        ("cutouts", packed("cutouts", 32, 32, (32, 36)), "its colour and extra must have one size"),
        (
            "photos",
            PackedPicture(packed("photos", 32, 32).colour, packed("photos", 32, 32).colour),
            "uint8 (32, 32, 3)",
        ),
        ("photos", PackedPicture(packed("photos", 32, 32).extra, packed("photos", 32, 32).extra), "got uint8 (32, 32)"),
    ],
)
def test_a_picture_that_does_not_fit_is_refused(
    tmp_path: Path, kind: str, picture: PackedPicture, sentence: str
) -> None:
    good = {k: [packed(k, 32, 32)] for k in KINDS}
    save_pictures({**good, kind: [*good[kind], picture]}, tmp_path / "bank.safetensors")
    with pytest.raises(FileFormatError) as caught:
        read_bank(tmp_path / "bank.safetensors")
    assert f"{kind}[1]" in str(caught.value)
    assert sentence in str(caught.value)


@given(st.data())
def test_damaged_bytes_are_refused_or_read_within_bounds(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    path = tmp_path_factory.mktemp("bank") / "bank.safetensors"
    save_pictures({kind: [packed(kind, 32, 32)] for kind in KINDS}, path)
    content = bytearray(path.read_bytes())
    for place in data.draw(st.lists(st.integers(0, len(content) - 1), min_size=1, max_size=4)):
        content[place] = data.draw(st.integers(0, 255))
    path.write_bytes(content[: data.draw(st.integers(0, len(content)))] if data.draw(st.booleans()) else content)
    try:
        bank = read_bank(path)
    except FileFormatError:
        return
    for kind in KINDS:
        offset, height, width = getattr(bank, kind).long().unbind(-1)
        assert (offset >= 0).all()
        assert (offset + height * width <= bank.pixels.numel()).all()


def test_a_file_of_another_kind_is_refused(tmp_path: Path) -> None:
    with pytest.raises(MissingFileError, match="no such file"):
        read_bank(tmp_path / "none.safetensors")
    with pytest.raises(FileFormatError, match="got a folder"):
        read_bank(tmp_path)
    (tmp_path / "text.safetensors").write_text("hello")
    with pytest.raises(FileFormatError, match="truncated: its header must have"):
        read_bank(tmp_path / "text.safetensors")
    save_file({"data": np.zeros(3, np.uint8)}, tmp_path / "other.safetensors")
    with pytest.raises(FileFormatError, match="not a bank of pictures"):
        read_bank(tmp_path / "other.safetensors")


def pad_header(file: Path, length: int) -> None:
    """Fill the header with spaces to a length."""
    data = file.read_bytes()
    end = 8 + int.from_bytes(data[:8], "little")
    file.write_bytes(length.to_bytes(8, "little") + data[8:end].ljust(length) + data[end:])


def test_a_bank_may_be_larger_than_the_byte_budget(file: Path) -> None:
    pad_header(file, 10**6)
    with reading(10**6):
        assert len(read_bank(file).photos) == len(pictures()["photos"])


def test_a_header_above_the_limit_is_refused(file: Path) -> None:
    pad_header(file, LARGEST_HEADER + 8)
    with pytest.raises(FileFormatError, match="must have a header of at most"):
        read_bank(file)


def test_saving_is_whole_or_not_at_all(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = file.read_bytes()

    def full_disk(self: Path, data: bytes) -> int:
        with self.open("wb") as target:
            target.write(data[:100])
        raise OSError("No space left on device")

    monkeypatch.setattr(Path, "write_bytes", full_disk)
    with pytest.raises(OSError, match="No space"):
        save_bank(make_bank(pictures()), file)
    assert [path.name for path in file.parent.iterdir()] == [file.name]
    assert file.read_bytes() == before
    with pytest.raises(InputError, match=r"must end in \.safetensors"):
        save_bank(make_bank(pictures()), file.with_suffix(".npz"))


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"photos": []}, "must have at least one of photos"),
        (
            {"cutouts": [Picture(smooth(16, 18), disc(16, 18))]},
            "one of the cutouts must have sides of 16",
        ),
        ({"materials": [Picture(smooth(16, 16), disc(16, 20))]}, "one of the materials must be uint8"),
        ({"materials": [Picture(smooth(16, 16).astype(np.float32), disc(16, 16))]}, "got float32 (16, 16, 3)"),
    ],
)
def test_pictures_that_fit_no_bank_are_refused(change: dict[str, list[Picture]], sentence: str) -> None:
    with pytest.raises(InputError) as caught:
        make_bank({**pictures(), **change})
    assert sentence in str(caught.value)


def test_threads_keep_the_order_and_stop_at_an_error() -> None:
    assert list(in_threads(lambda n: n * n, range(100), 4)) == [n * n for n in range(100)]
    done: list[int] = []

    def work(n: int) -> None:
        if n == 3:
            raise InputError("three")
        time.sleep(0.001)
        done.append(n)

    with pytest.raises(InputError, match="three"):
        list(in_threads(work, range(2000), 2))
    assert len(done) < 1000
