"""Draw the picture of results-and-pictures.md with the package's demo scene: python docs/show_picture.py."""

from pathlib import Path

import cv2

from flowinpaint.data.demo_scene import sample_scene
from flowinpaint.viz.field_picture import field_picture


def main(path: Path) -> None:
    """Write the scene's flow as `flowinpaint show --arrows --over` draws it."""
    image, truth = sample_scene(seed=0)
    drawn = field_picture(truth, "scene.flo", image, arrows=True)
    # Not fi.write_image, whose quality makes files twice the size.
    cv2.imwrite(str(path), cv2.cvtColor(drawn, cv2.COLOR_RGB2BGR), [cv2.IMWRITE_JPEG_QUALITY, 80])


if __name__ == "__main__":
    main(Path(__file__).with_name("show-arrows.jpg"))
