"""The version, in one place; CITATION.cff repeats it."""

__version__ = "0.1.0"
