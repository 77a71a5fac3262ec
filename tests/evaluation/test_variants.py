import numpy as np
import pytest

from flowinpaint.data.folder import Frame
from flowinpaint.evaluation.variants import Variant, parse_variant


@pytest.mark.parametrize(
    ("name", "variant"),
    [
        ("eed", Variant("eed")),
        ("eed+robust", Variant("eed", robust=True)),
        ("eed+second", Variant("eed", second=True)),
        ("eed+robust+second", Variant("eed", robust=True, second=True)),
        ("runs/a+b.safetensors+robust", Variant("runs/a+b.safetensors", robust=True)),
        ("a+robust/b", Variant("a+robust/b")),
        ("eed+fast", Variant("eed+fast")),
    ],
)
def test_options_follow_the_name(name: str, variant: Variant) -> None:
    assert parse_variant(name) == variant
    assert variant.name == name


@pytest.mark.parametrize("name", ["eed+second+robust", "eed+robust+robust+second"])
def test_a_variant_has_one_name(name: str) -> None:
    assert parse_variant(name).name == "eed+robust+second"


def test_keywords_are_only_those_of_the_options() -> None:
    flow, known, second = np.zeros((2, 3, 2), np.float32), np.ones((2, 3), np.bool_), np.ones((2, 3), np.uint8)
    frame = Frame(np.zeros((2, 3), np.uint8), flow, known, known, second=second)
    assert parse_variant("eed").keywords(frame) == {}
    assert parse_variant("eed+robust").keywords(frame) == {"robust": True}
    both = parse_variant("eed+robust+second").keywords(frame)
    assert both.keys() == {"robust", "second"}
    assert both["second"] is second
