"""Print the figures of a benchmark as a table and write them as JSON."""

import json
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table


def show(figures: dict[str, Any], title: str, json_path: Path | None = None) -> None:
    """Print the figures and write them to `json_path`, if given. None means not measured; a text gives the reason."""
    table = Table(title=title)
    table.add_column("figure")
    table.add_column("value", justify="right")
    for name, value in figures.items():
        table.add_row(name, value if isinstance(value, str) else _format_number(value))
    Console().print(table)
    if json_path is not None:
        from byol_explore.utils.files import (
            atomic_write,
        )  # imports JAX, whose memory must not count in benchmarks/report.py

        atomic_write(json_path, json.dumps(figures, indent=2) + "\n")


def _format_number(value: float | None) -> str:
    if value is None:
        return "not measured"
    return f"{value:,.3f}" if abs(value) < 100 else f"{value:,.0f}"
