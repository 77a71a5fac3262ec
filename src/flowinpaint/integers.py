"""Whole numbers: Triton's own functions for these take microseconds, which a launch has no time for."""

from __future__ import annotations


def ceil_div(a: int, b: int) -> int:
    """A / b, rounded up."""
    return -(-a // b)


def power_of_two(n: int) -> int:
    """The least power of two that is not below n, n being at least 1."""
    return 1 << (n - 1).bit_length()
