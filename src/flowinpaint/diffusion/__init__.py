"""Diffusion: tensor, discretisation, data term, pyramid, FSI and steady state."""
