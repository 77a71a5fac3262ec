import os

import pytest
import torch
from hypothesis import settings

from flowinpaint.training import batches
from tiny_runs import halves

if not torch.cuda.is_available():
    os.environ["TRITON_INTERPRET"] = "1"  # read when the GPU's kernels are first imported

settings.register_profile("flowinpaint", deadline=None, derandomize=True)
settings.load_profile("flowinpaint")
# The tests run in parallel processes, one per core.
torch.set_num_threads(1)
# A reference in float32 is that: by default cuDNN convolves with factors of 10 bits.
torch.backends.cudnn.allow_tf32 = False

pytest_plugins = ["tiny_reproductions"]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    if torch.cuda.is_available():
        return
    for item in items:
        if item.get_closest_marker("gpu"):
            item.add_marker(pytest.mark.skip(reason="no CUDA device"))


@pytest.fixture
def simple_scenes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Train on scenes that cost nothing, in place of the generator's."""
    monkeypatch.setattr(batches, "scenes_of", halves)
