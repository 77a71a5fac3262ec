"""The networks' kernels."""
