"""The explicit half: diffusion tensor, its discretisation, the pyramid, and the iteration, in plain PyTorch."""
