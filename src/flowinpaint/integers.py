"""Integer arithmetic for kernel launches; Triton's own functions take microseconds each."""

from __future__ import annotations


def ceil_div(a: int, b: int) -> int:
    """A / b, rounded up."""
    return -(-a // b)


def power_of_two(n: int) -> int:
    """The smallest power of two that is at least n, for n >= 1."""
    return 1 << (n - 1).bit_length()
