"""Options of commands, parsed by tyro, and tables of what there is."""

from collections.abc import Iterable, Sequence
from typing import Any

import tyro
from rich.console import Console
from rich.table import Table
from tyro.constructors import ConstructorRegistry, PrimitiveConstructorSpec, PrimitiveTypeInfo

from byol_explore.utils.validation import parse_int

_REGISTRY = ConstructorRegistry()


@_REGISTRY.primitive_rule
def _int_rule(info: PrimitiveTypeInfo) -> PrimitiveConstructorSpec[int] | None:
    """Accept 1e6 where an int is expected."""
    if info.type is not int:
        return None
    return PrimitiveConstructorSpec(
        nargs=1,
        metavar="INT",
        instance_from_str=lambda words: parse_int(words[0]),
        is_instance=lambda instance: isinstance(instance, int) and not isinstance(instance, bool),
        str_from_instance=lambda instance: [str(instance)],
    )


def parse(name: str, kind: type, arguments: Sequence[str], **options: Any) -> Any:
    """Parse the arguments of a command.

    Args:
      name: of the command, behind `byol-explore`.
      kind: dataclass whose fields are the options.
      arguments: what was typed behind the name.
      options: further arguments of `tyro.cli`.

    Returns:
      An instance of the dataclass. For a wrong argument tyro prints a message and exits with code 2.
    """
    return tyro.cli(kind, args=list(arguments), prog=f"byol-explore {name}", registry=_REGISTRY, **options)


def print_table(title: str, columns: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    """Print a table of texts."""
    table = Table(*columns, title=title, title_justify="left")
    for row in rows:
        table.add_row(*row)
    Console().print(table)
