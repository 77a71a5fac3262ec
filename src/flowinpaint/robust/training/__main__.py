"""`python -m flowinpaint.robust.training`: train the assessor."""

from __future__ import annotations

import argparse
from dataclasses import fields
from pathlib import Path

from flowinpaint.robust.training.train import Settings, save_assessor, train


def main() -> None:
    """Train with the settings of the command line, and write the weights."""
    parser = argparse.ArgumentParser(prog="python -m flowinpaint.robust.training", description=train.__doc__)
    parser.add_argument("-o", "--out", type=Path, default=Path("assessor.safetensors"))
    for field in fields(Settings):
        default = field.default
        parser.add_argument(f"--{field.name}", type=type(default), default=default, help=f"Default {default!r}.")
    options = vars(parser.parse_args())
    out = options.pop("out")
    save_assessor(train(Settings(**options), lambda line: print(line, flush=True)), out)
    print(f"Wrote {out}.")


if __name__ == "__main__":
    main()
