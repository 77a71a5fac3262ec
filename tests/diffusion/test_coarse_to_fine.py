import torch
from torch import Tensor

from flowinpaint.diffusion.pyramid import coarse_to_fine


def test_every_level_is_solved_once_and_refined_before_all_but_the_first() -> None:
    seen: list[str] = []

    def refine(u: Tensor, level: str) -> Tensor:
        seen.append(f"refine to {level}")
        return 2 * u

    def solve(k: int, level: str, u: Tensor) -> Tensor:
        seen.append(f"{k}: solve {level} from {float(u):g}")
        return u + 1

    assert float(coarse_to_fine(["a", "b", "c"], torch.tensor(1.0), refine, solve)) == 11
    assert seen == ["0: solve a from 1", "refine to b", "1: solve b from 4", "refine to c", "2: solve c from 10"]
