"""PD: probabilistic diffusion."""
