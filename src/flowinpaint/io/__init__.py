"""Read and write flow fields, masks and images."""

from flowinpaint.io.files import StrPath, atomic_path, check_folder_writable, make_folder, new_folder, real_path
from flowinpaint.io.flow import FLOW_SUFFIXES, check_flow_writable, clip_to_format, read_flow, write_flow
from flowinpaint.io.images import IMAGE_SUFFIXES, check_image_writable, read_image, read_mask, write_image, write_mask
from flowinpaint.io.maps import read_map, read_probability, write_map
from flowinpaint.io.publish import publishing
from flowinpaint.io.units import Unit, parse_unit, png_unit

__all__ = [
    "FLOW_SUFFIXES",
    "IMAGE_SUFFIXES",
    "StrPath",
    "Unit",
    "atomic_path",
    "check_flow_writable",
    "check_folder_writable",
    "check_image_writable",
    "clip_to_format",
    "make_folder",
    "new_folder",
    "parse_unit",
    "png_unit",
    "publishing",
    "read_flow",
    "read_image",
    "read_map",
    "read_mask",
    "read_probability",
    "real_path",
    "write_flow",
    "write_image",
    "write_map",
    "write_mask",
]
