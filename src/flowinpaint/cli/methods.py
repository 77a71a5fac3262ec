"""`flowinpaint methods`."""

from collections.abc import Mapping

from rich.table import Table

from flowinpaint import api
from flowinpaint.cli.console import output


def command() -> None:
    """List the methods and the parameters each takes."""
    table = Table()
    for heading in ("method", "what it does", "parameters (default)", "weights"):
        table.add_column(heading, no_wrap=heading == "method")
    for name, network in api.NETWORKS.items():
        table.add_row(name, network.summary, _defaults(network.config.parameters), "shipped")
    for name, explicit in api.EXPLICIT.items():
        table.add_row(name, explicit.summary, _defaults(explicit.parameters), "needs none")
    output.print(table)


def _defaults(parameters: Mapping[str, float | str | None]) -> str:
    return ", ".join(f"{key} ({_written(value)})" for key, value in parameters.items())


def _written(default: float | str | None) -> str:
    if default is None:
        return "chosen"
    return default if isinstance(default, str) else f"{default:g}"
