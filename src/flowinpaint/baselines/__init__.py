"""Neural baselines of the paper, a folder each: config, module, training objective and model card.

The name of a folder is the kind of its network (`flowinpaint.networks.registry`).
"""
