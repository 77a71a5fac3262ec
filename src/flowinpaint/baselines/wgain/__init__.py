"""WGAIN: adversarial imputation."""
