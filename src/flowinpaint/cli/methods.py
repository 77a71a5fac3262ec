"""`flowinpaint methods`."""

from rich.table import Table

from flowinpaint import api
from flowinpaint.cli.console import output


def command() -> None:
    """List the methods and the parameters each takes."""
    table = Table()
    for heading in ("method", "what it does", "parameters (default)", "weights"):
        table.add_column(heading, no_wrap=heading == "method")
    for name, network in api.NETWORKS.items():
        table.add_row(name, network.summary, "", "shipped")
    for name, explicit in api.EXPLICIT.items():
        defaults = ", ".join(f"{key} ({_written(value)})" for key, value in explicit.parameters.items())
        table.add_row(name, explicit.summary, defaults, "needs none")
    output.print(table)


def _written(default: float | str | None) -> str:
    if default is None:
        return "chosen"
    return default if isinstance(default, str) else f"{default:g}"
