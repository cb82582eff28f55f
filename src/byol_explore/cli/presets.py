"""`byol-explore presets`: named settings and named changes of them."""

from collections.abc import Sequence

from rich.console import Console
from rich.table import Table

from byol_explore.cli.parsing import no_arguments
from byol_explore.settings.presets import ABLATIONS, PRESETS


def run(arguments: Sequence[str]) -> None:
    no_arguments("presets", "List presets and ablations.", arguments)
    presets = {name: PRESETS.get(name) for name in PRESETS.names()}
    for title, entries in (("presets", presets), ("ablations", ABLATIONS)):
        table = Table(title=title, title_justify="left")
        table.add_column("name")
        table.add_column("what it is")
        for name, entry in entries.items():
            table.add_row(name, entry.description)
        Console().print(table)
