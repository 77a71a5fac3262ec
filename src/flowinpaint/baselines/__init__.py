"""The paper's neural baselines, one folder each."""
