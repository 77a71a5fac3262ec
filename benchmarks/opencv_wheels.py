"""Install the package next to each wheel of OpenCV, and check that the wheel is unchanged and that both work.

    python benchmarks/opencv_wheels.py [--folder DIR] [--versions 5.0.0.93,4.10.0.84]

For each wheel and version, and once without OpenCV, it makes a virtual environment that borrows all other packages of
the running one, installs the wheel and then the package with the extra `fast`, and runs the checks. It also does the
extra `opencv` in an environment without OpenCV. Needs an index with the wheels; about 15 s for each environment.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import sysconfig
import tempfile
from pathlib import Path

from flowinpaint.opencv import WHEELS

ROOT = Path(__file__).resolve().parents[1]
STATE = """
import cv2, hashlib
from pathlib import Path
gui = next(line.split(":")[1].strip() for line in cv2.getBuildInformation().splitlines() if " GUI:" in line)
files = sorted(p for p in Path(cv2.__file__).parent.rglob("*.*") if p.is_file() and p.suffix != ".pyc")
digest = hashlib.sha256(b"".join(hashlib.sha256(p.read_bytes()).digest() for p in files)).hexdigest()[:12]
print(cv2.__version__, "ximgproc" if hasattr(cv2, "ximgproc") else "-", "GUI " + gui, len(files), "files", digest)
"""
USE = """
import numpy as np, flowinpaint as fi
assert "site-packages" in fi.__file__, fi.__file__
image, rng = np.zeros((48, 64, 3), np.uint8), np.random.default_rng(0)
flow = np.where(rng.random((48, 64, 1)) < 0.2, 1, np.nan).astype(np.float32).repeat(2, axis=2)
assert np.isfinite(fi.inpaint(image, flow, device="cpu").flow).all()
try:
    fi.write_image("image.png", image)
    assert (fi.read_image("image.png") == image).all()
    fi.preview(image, flow, np.isfinite(flow[..., 0]), {"filled": fi.inpaint(image, flow, method="harmonic").flow})
    fi.inpaint(image, flow, second=image, device="cpu")
    print("pictures, drawing and the second image work")
except ValueError as error:
    print(error)
try:
    fi.inpaint(image, flow, method="opencv-edgeaware")
    print("opencv-edgeaware works")
except ValueError as error:
    print(error)
"""


def run(*command: str | Path, cwd: Path) -> str:
    """The output of a command; SystemExit with all of it if it fails."""
    variables = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True, check=False, env=variables, cwd=cwd)
    if done.returncode:
        raise SystemExit(f"{' '.join(map(str, command))}\n{done.stdout}{done.stderr}")
    return done.stdout.strip()


def borrow(folder: Path) -> None:
    """Link the installed packages of this environment, except OpenCV and this package, into an environment."""
    target = next(folder.glob("lib/python*/site-packages"))
    for path in Path(sysconfig.get_paths()["purelib"]).iterdir():
        name = path.name.lower()
        own = name.startswith(("opencv", "cv2", "flowinpaint", "_flowinpaint", "pip", "__pycache__"))
        if not own and not (target / path.name).exists():
            (target / path.name).symlink_to(path)


def check(name: str, wheel: str | None, package: str, folder: Path) -> None:
    """Build an environment, install into it, and print what works."""
    run(sys.executable, "-m", "venv", folder, cwd=folder.parent)
    python = folder / "bin" / "python"
    borrow(folder)
    before = None
    if wheel:
        run(python, "-m", "pip", "install", "-q", "--no-deps", wheel, cwd=folder)
        before = run(python, "-c", STATE, cwd=folder)
    run(python, "-m", "pip", "install", "-q", package, cwd=folder)
    run(python, "-m", "pip", "check", cwd=folder)
    listed = run(python, "-m", "pip", "list", "--format=freeze", cwd=folder).splitlines()
    print(f"## {name}\ninstalled: {', '.join(x for x in listed if 'opencv' in x) or 'no OpenCV'}; pip check passes")
    if before is not None:
        after = run(python, "-c", STATE, cwd=folder)
        print(after, "unchanged" if after == before else f"CHANGED from {before}", sep=": ")
    print(run(python, "-c", USE, cwd=folder), flush=True)


def main() -> None:
    """Check each wheel in each version."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--folder", help="where to make the environments; by default a temporary folder")
    parser.add_argument("--versions", default="5.0.0.93,4.10.0.84", help="versions of each wheel")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=options.folder) as temporary:
        folder = Path(temporary)
        run(sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "-w", folder, ROOT, cwd=folder)
        (package,) = folder.glob("flowinpaint-*.whl")
        cases = [(f"{wheel} {v}", f"{wheel}=={v}") for v in options.versions.split(",") for wheel in WHEELS]
        for n, (name, wheel) in enumerate(cases):
            check(name, wheel, f"{package}[fast]", folder / str(n))
        check("no OpenCV", None, f"{package}[fast]", folder / "none")
        check("no OpenCV, extras fast, opencv and peers", None, f"{package}[fast,opencv,peers]", folder / "extra")


if __name__ == "__main__":
    main()
