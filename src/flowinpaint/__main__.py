"""`flowinpaint` and `python -m flowinpaint` are the command line."""

from flowinpaint.interrupts import end_by_default


def main() -> None:
    """Run the command line; until a command begins, a signal ends the process at once."""
    end_by_default()
    from flowinpaint.cli import main

    main()


if __name__ == "__main__":
    main()
