"""Backends of the neuroexplicit method: PyTorch, CPU, CUDA and CUDA with gradient."""
