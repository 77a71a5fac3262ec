"""`flowinpaint methods`."""

from rich.table import Table

from flowinpaint.cli.console import output, say
from flowinpaint.methods.method import Method
from flowinpaint.methods.registry import all_methods


def command() -> None:
    """List the methods and their parameters."""
    table = Table()
    for heading in ("method", "what it does", "parameters (default)", "weights"):
        table.add_column(heading, no_wrap=heading == "method")
    found = all_methods()
    for method in found:
        if not method.why_not():
            defaults = ", ".join(f"{key} ({_written(value)})" for key, value in method.parameters.items())
            table.add_row(method.name, method.summary, defaults, _weights(method))
    output.print(table)
    for method in found:
        if reason := method.why_not():
            say("Unavailable:", "yellow", f"{method.name} {reason.rstrip('.')}.")


def _weights(method: Method) -> str:
    if method.weights is None:
        return "needs none"
    return "shipped" if method.shipped else str(method.weights)


def _written(default: float | str | None) -> str:
    if default is None:
        return "automatic"
    return default if isinstance(default, str) else f"{default:g}"
