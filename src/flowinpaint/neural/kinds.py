"""The kinds of networks there are: the configuration of each says which one it is."""

from __future__ import annotations

from typing import Any

from flowinpaint.neural.flownets import FlowNetS, FlowNetSConfig
from flowinpaint.neural.model_config import NeuroexplicitConfig
from flowinpaint.neural.network import Network
from flowinpaint.neural.neuroexplicit import Neuroexplicit
from flowinpaint.neural.pd_config import PDConfig
from flowinpaint.neural.wgain import WGAIN, WGAINConfig

ModelConfig = NeuroexplicitConfig | FlowNetSConfig | WGAINConfig | PDConfig
CONFIGS: dict[str, type[Any]] = {
    "neuroexplicit": NeuroexplicitConfig,
    "flownets": FlowNetSConfig,
    "wgain": WGAINConfig,
    "pd": PDConfig,
}


def build_network(config: ModelConfig) -> Network:
    """A network with new weights."""
    match config:
        case NeuroexplicitConfig():
            return Neuroexplicit(config)
        case FlowNetSConfig():
            return FlowNetS(config)
        case WGAINConfig():
            return WGAIN(config)
        case PDConfig():
            from flowinpaint.neural.pd import PD  # it needs diffusers

            return PD(config)
