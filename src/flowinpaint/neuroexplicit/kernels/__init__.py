"""Kernels of the neuroexplicit network and its edge weights: oneDNN, numba and Triton."""
