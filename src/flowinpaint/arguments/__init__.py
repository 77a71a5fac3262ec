"""From the arguments of `inpaint` to arrays of matching shapes, and back: types, regions, spaces, and their checks."""
