"""The kinds of networks there are: the configuration of each says which one it is."""

from __future__ import annotations

from typing import Any

from flowinpaint.baselines.flownets.module import FlowNetS, FlowNetSConfig
from flowinpaint.baselines.pd.config import PDConfig
from flowinpaint.baselines.wgain.module import WGAIN, WGAINConfig
from flowinpaint.networks.network import Network
from flowinpaint.neuroexplicit.config import NeuroexplicitConfig
from flowinpaint.neuroexplicit.model import Neuroexplicit

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
            from flowinpaint.baselines.pd.module import PD  # it needs diffusers

            return PD(config)
