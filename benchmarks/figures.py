"""What every benchmark does with its figures: a table to read, and JSON to keep."""

import json
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table


def show(figures: dict[str, Any], title: str, json_path: Path | None = None) -> None:
    """Print the figures; with a path, also write them there. None was not measured, and a text may say why."""
    table = Table(title=title)
    table.add_column("figure")
    table.add_column("value", justify="right")
    for name, value in figures.items():
        table.add_row(name, value if isinstance(value, str) else _number(value))
    Console().print(table)
    if json_path is not None:
        from byol_explore.files import write_atomically  # starts JAX, whose memory is not that of a report

        write_atomically(json_path, json.dumps(figures, indent=2) + "\n")


def _number(value: float | None) -> str:
    if value is None:
        return "not measured"
    return f"{value:,.3f}" if abs(value) < 100 else f"{value:,.0f}"
