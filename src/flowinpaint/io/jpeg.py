"""JPEG files: their segments and scans, and how a truncated scan is found.

At a marker a decoder fills the rest of a truncated scan with grey, and reports nothing. Where the data end without a
marker it waits for more: OpenCV 5 fails, OpenCV 4 leaves the rest of the pixels as they are in memory. So
`checked_jpeg` returns a single scan without the end marker, with a few bytes more than decoders read ahead: a truncated
scan then fails, unless no more than these bytes are missing. OpenCV 4 decodes it again `with_junk`, which only changes
the pixels of a truncated scan. Files of several scans, which need the end marker, are complete if their scans code
every bit of every coefficient; only the end of their last scan, usually the lowest bits of some coefficients, is not
checked.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Generator, Iterator
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from flowinpaint.io.budget import ALLOW_MORE, byte_budget

MOST_SEGMENTS = 1000
MOST_SCANS = 100
"""Progressive files have about 10."""
MOST_BLOCKS = 2**25
"""Most blocks of 8x8 samples that all scans together decode: four times those of a usual progressive 8K frame."""
MOST_RESTARTS = 2**20

# 0xFF followed by 0x00 is a coded 0xFF, by 0xFF a fill byte, by 0xD0-0xD7 a restart marker within a scan.
_MARKER = re.compile(rb"\xff([^\x00\xff\xd0-\xd7])")
_ALONE = frozenset([0x01, 0xD8])
"""Markers without a segment."""
_END, _SCAN, _INTERVAL = 0xD9, 0xDA, 0xDD
_FRAMES = frozenset(range(0xC0, 0xD0)) - {0xC4, 0xC8, 0xCC}
_SEQUENTIAL, _PROGRESSIVE = (0xC0, 0xC1), 0xC2
_COMMENTS = frozenset([*range(0xE0, 0xF0), 0xFE])
_COLOUR = (b"JFIF\0", b"Adobe")
"""These application segments change the colours. Decoders ignore others, such as EXIF, colour profiles and notes."""
AHEAD = b"\xfe" * 8
"""As many bytes as decoders read ahead. They start with the longest codes, which complete few blocks."""

Fault = str | bool | None


class Segment(NamedTuple):
    """A marker, where it starts, and the bytes from `start` to `end` of its content."""

    marker: int
    place: int
    start: int
    end: int


class Frame(NamedTuple):
    """The content of a frame header: size in pixels, and by component its id and sampling factors."""

    marker: int
    width: int
    height: int
    precision: int
    components: dict[int, tuple[int, int]]
    channels: int

    @property
    def samples(self) -> int:
        """Samples of all components, at most."""
        return self.width * self.height * self.channels

    def mcus(self, ids: list[int]) -> tuple[int, int]:
        """The number of units (MCUs) that a scan of these components codes, and that of blocks."""
        widest, highest = (max(factors[axis] for factors in self.components.values()) for axis in (0, 1))
        if len(ids) == 1:
            h, v = self.components[ids[0]]
            units = -(-self.width * h // (8 * widest)) * -(-self.height * v // (8 * highest))
            return units, units
        units = -(-self.width // (8 * widest)) * -(-self.height // (8 * highest))
        return units, units * sum(h * v for h, v in (self.components[k] for k in ids))


def segments(data: bytes) -> Iterator[Segment]:
    """The first segments up to the end of the image; at most one more than MOST_SEGMENTS."""
    position = 2
    for _ in range(MOST_SEGMENTS + 1):
        match = _MARKER.search(data, position)
        if match is None:
            return
        marker, start = match[1][0], match.end()
        if marker == _END or marker in _ALONE:
            position = start
            yield Segment(marker, match.start(), start, start)
            if marker == _END:
                return
        else:
            position = start + int.from_bytes(data[start : start + 2], "big")
            yield Segment(marker, match.start(), start + 2, position)


def read_frame(data: bytes, found: list[Segment]) -> Frame | None:
    """The first frame header; None if there is none, or not all of it."""
    frame = next((s for s in found if s.marker in _FRAMES), None)
    content = b"" if frame is None else data[frame.start : frame.end]
    if frame is None or len(content) < 6:
        return None
    precision, height, width, channels = struct.unpack_from(">BHHB", content)
    table = content[6:]
    components = {table[k]: (table[k + 1] >> 4, table[k + 1] & 15) for k in range(0, len(table) - 2, 3)}
    return Frame(frame.marker, width, height, precision, components, channels)


def checked_jpeg(data: bytes, found: list[Segment], frame: Frame) -> Generator[Fault, None, bytes]:
    """Faults of a JPEG, each false if absent; returns the bytes to decode, without comments."""
    size = f"{frame.width}x{frame.height}"
    yield len(found) > MOST_SEGMENTS and f"a JPEG must have at most {MOST_SEGMENTS} segments"
    kind = frame.marker in (*_SEQUENTIAL, _PROGRESSIVE) and frame.precision == 8
    yield not kind and "a JPEG must be baseline or progressive with 8 bits; it cannot be arithmetic, lossless or other"
    sampled = all(1 <= factor <= 4 for factors in frame.components.values() for factor in factors)
    good = frame.channels in (1, 3, 4) and len(frame.components) == frame.channels and sampled
    yield not good and "damaged: a JPEG must have 1, 3 or 4 components, each with its own id and sampling"
    yield sum(s.marker in _FRAMES for s in found) > 1 and "damaged: a JPEG must have one frame"
    yield any(s.marker in (0xDC, 0xDE, 0xDF) for s in found) and "a hierarchical JPEG, or one with DNL, cannot be read"
    # Bytes after the end marker are common and harmless.
    yield found[-1].marker != _END and f"truncated: the header says {size}, the file has no end-of-image marker"
    yield any(s.end > len(data) or s.end < s.start for s in found) and "damaged: a segment of this JPEG is too long"
    ids = list(frame.components)
    # By component and coefficient, the lowest bit that scans have coded; 99 for none.
    lowest = np.full((len(ids), 64), 99)
    kept, interval, scans, blocks, restarts = [data[:2]], 0, 0, 0, 0
    single = False
    for segment, following in zip(found, [*found[1:], None], strict=True):
        content = data[segment.start : segment.end]
        if segment.marker in _COMMENTS and not content.startswith(_COLOUR):
            continue
        kept.append(data[segment.place : segment.end])
        if segment.marker == _INTERVAL:
            interval = int.from_bytes(content[:2], "big")
        if segment.marker != _SCAN or following is None:
            continue
        scans += 1
        yield scans > MOST_SCANS and f"a JPEG must have at most {MOST_SCANS} scans"
        count = content[0] if content else 0
        coded = list(content[1 : 1 + 2 * count : 2])
        known = len(content) == 2 * count + 4 and 0 < len(set(coded) & set(ids)) == count
        yield not known and f"damaged: scan {scans} of this JPEG must name its components"
        first, last, bits = content[-3], content[-2], content[-1] & 15
        if frame.marker != _PROGRESSIVE:
            first, last, bits = 0, 63, 0
        lowest[[ids.index(k) for k in coded], first : last + 1] = bits
        units, visited = frame.mcus(coded)
        blocks += visited
        empty = first == 0 and 8 * (following.place - segment.end) < visited  # each block takes a bit or more
        yield empty and f"truncated: scan {scans} of this JPEG has too few bytes for its blocks"
        yield blocks > MOST_BLOCKS and f"a JPEG must have at most {MOST_BLOCKS} blocks in all scans"
        raster = data[segment.end : following.place].rstrip(b"\xff")
        places = _restarts(raster)
        restarts += len(places)
        yield restarts > MOST_RESTARTS and f"a JPEG must have at most {MOST_RESTARTS} restart markers"
        expected = (units - 1) // interval if interval else 0
        marks = np.frombuffer(raster, np.uint8)[places + 1]
        counted = len(places) == expected or (interval and len(places) == expected + 1)
        missing = not counted or bool((marks != 0xD0 + np.arange(len(places)) % 8).any())
        yield missing and f"truncated or damaged: scan {scans} must have {expected} restart markers, got {len(places)}"
        kept.append(raster[: places[-1]] if len(places) > expected else raster)
        single = frame.marker != _PROGRESSIVE and count == frame.channels
    yield bool((lowest > 0).any()) and f"truncated: its {scans} scans do not complete all coefficients"
    coded_bytes = sum(map(len, kept))
    most = byte_budget() // 8
    fault = f"a JPEG must have at most {most} coded bytes, got {coded_bytes}; {ALLOW_MORE}"
    yield coded_bytes > most and fault
    if single and scans == 1:
        kept[-1] = AHEAD  # instead of the end marker
    return b"".join(kept)


def with_junk(data: bytes, width: int) -> bytes:
    """The result of `checked_jpeg` followed by random bytes, enough for a row of blocks."""
    rng = np.random.default_rng(0)
    return data + rng.integers(0, 0xFF, 4096 + 16 * width, np.uint8).tobytes()


def _restarts(raster: bytes) -> npt.NDArray[np.intp]:
    """The places of the restart markers in the coded data of a scan."""
    values = np.frombuffer(raster, np.uint8)
    found: npt.NDArray[np.intp] = np.flatnonzero((values[:-1] == 0xFF) & (values[1:] & 0xF8 == 0xD0))
    return found
