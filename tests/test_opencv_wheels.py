"""OpenCV: one place that imports it, and the messages if it is missing, damaged or old."""

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

import flowinpaint as fi
from flowinpaint import opencv

SOURCES = Path(__file__).resolve().parents[1] / "src" / "flowinpaint"
WITHOUT = """
import importlib, sys
sys.modules["cv2"] = None
import numpy as np, flowinpaint as fi
for name in sys.argv[2].split():
    importlib.import_module(name)
image = np.linspace(0, 1, 24 * 32).reshape(24, 32).astype(np.float32)
flow = np.full((24, 32, 2), np.nan, np.float32)
flow[::5, ::5] = 1
assert abs(fi.inpaint(image, flow, method="nearest").flow - 1).max() == 0
fi.write_flow(sys.argv[1], flow)
fi.read_flow(sys.argv[1])
from flowinpaint.cli import main
sys.argv = ["flowinpaint", "demo"]
main()
"""


@pytest.fixture
def fresh() -> Iterator[None]:
    opencv.load_opencv.cache_clear()
    yield
    opencv.load_opencv.cache_clear()


def test_opencv_isload_opencv_in_one_place() -> None:
    pattern = re.compile(r"^\s*(import cv2|from cv2)", re.M)
    assert [p.name for p in SOURCES.rglob("*.py") if pattern.search(p.read_text(encoding="utf-8"))] == ["opencv.py"]


def test_without_opencv_fields_are_filled_and_commands_name_the_wheels(tmp_path: Path) -> None:
    users = [p for p in SOURCES.rglob("*.py") if "flowinpaint.opencv import" in p.read_text(encoding="utf-8")]
    names = " ".join(".".join(p.relative_to(SOURCES.parent).with_suffix("").parts) for p in users)
    command = [sys.executable, "-c", WITHOUT, str(tmp_path / "flow.flo"), names]
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, check=False)
    assert done.returncode == 1
    assert done.stderr.splitlines() == [
        "Error: flowinpaint needs OpenCV: pip install opencv-contrib-python-headless, or one of "
        "opencv-python-headless, opencv-contrib-python, opencv-python"
    ]


@pytest.mark.usefixtures("fresh")
@pytest.mark.parametrize(
    ("version", "message"),
    [
        ("4.8.1", r"^OpenCV must be 4.9 or newer, got 4.8.1$"),
        ("", r"^OpenCV cannot be used, because files are missing: pip uninstall -y opencv.* && pip install opencv"),
    ],
)
def test_an_unusable_opencv_is_described(monkeypatch: pytest.MonkeyPatch, version: str, message: str) -> None:
    module = ModuleType("cv2")
    if version:
        module.__dict__["__version__"] = version
    monkeypatch.setitem(sys.modules, "cv2", module)
    with pytest.raises(fi.InputError, match=message):
        _ = opencv.cv2.INTER_AREA


@pytest.mark.usefixtures("fresh")
def test_a_library_that_is_missing_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(name: str) -> ModuleType:
        raise ImportError("libGL.so.1: cannot open shared object file")

    monkeypatch.setattr(opencv, "import_module", fail)
    with pytest.raises(fi.InputError, match=r"^OpenCV cannot be imported: libGL.*; .*-headless"):
        _ = opencv.cv2.INTER_AREA


@pytest.mark.parametrize(
    ("wheels", "command"),
    [
        ({}, "pip install opencv-contrib-python-headless"),
        (
            {"opencv-python": "4.10.0.84"},
            "pip uninstall -y opencv-python && pip install opencv-contrib-python==4.10.*",
        ),
        (
            {"opencv-contrib-python-headless": "4.9.0.80", "opencv-python-headless": "4.10.0.84"},
            "pip uninstall -y opencv-contrib-python-headless opencv-python-headless && "
            "pip install opencv-contrib-python-headless==4.10.*",
        ),
    ],
)
def test_contributed_modules_replace_the_installed_wheels(
    monkeypatch: pytest.MonkeyPatch, wheels: dict[str, str], command: str
) -> None:
    monkeypatch.setattr(opencv, "installed_wheels", lambda: wheels)
    assert opencv.contrib_command() == command
