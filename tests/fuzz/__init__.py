"""Fuzz suite: readers on damaged and hostile files, in child processes with limits; `inpaint` on arbitrary arrays."""
