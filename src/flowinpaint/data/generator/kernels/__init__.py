"""Triton kernels that render layered scenes on CUDA, in eight launches."""
