"""Words of the command line as values; wrong ones are answered in one line."""

import argparse
import contextlib
import io
import re
from collections.abc import Sequence
from typing import Any, NoReturn

import tyro
from tyro.constructors import ConstructorRegistry, PrimitiveConstructorSpec, PrimitiveTypeInfo

from byol_explore.errors import UserError
from byol_explore.rules import whole_number

_KINDS = ConstructorRegistry()


@_KINDS.primitive_rule
def _whole_number(info: PrimitiveTypeInfo) -> PrimitiveConstructorSpec[int] | None:
    """1e6 is a whole number too."""
    if info.type is not int:
        return None
    return PrimitiveConstructorSpec(
        nargs=1,
        metavar="INT",
        instance_from_str=lambda words: whole_number(words[0]),
        is_instance=lambda instance: isinstance(instance, int) and not isinstance(instance, bool),
        str_from_instance=lambda instance: [str(instance)],
    )


class OneLineParser(argparse.ArgumentParser):
    """Whose errors are one line, like all others."""

    def error(self, message: str) -> NoReturn:
        raise UserError(message)


def no_arguments(name: str, description: str, arguments: Sequence[str]) -> None:
    """For a command that takes none but --help."""
    OneLineParser(prog=f"byol-explore {name}", description=description).parse_args(list(arguments))


def parse(name: str, kind: type, arguments: Sequence[str], **settings: Any) -> Any:
    """A command from its arguments; what tyro says about wrong ones, in one line."""
    said = io.StringIO()
    try:
        with contextlib.redirect_stderr(said):
            return tyro.cli(kind, args=list(arguments), prog=f"byol-explore {name}", registry=_KINDS, **settings)
    except SystemExit as stop:
        if stop.code:
            raise UserError(_unboxed(said.getvalue())) from None
        raise


def _unboxed(box: str) -> str:
    """The complaint in tyro's box, and the options that it thinks were meant; the title comes before it."""
    text = re.sub(r"\x1b\[[\d;]*m|[│╭╮╰╯]", "", box)
    _, complaint, *rest = re.split(r"[─-]{3,}", text)
    meant = re.findall(r"^ *(--[\w.-]+)", "".join(part for part in rest if "Perhaps you meant" in part), re.MULTILINE)
    return " ".join(complaint.split()) + (f"; perhaps you meant {' or '.join(meant)}" if meant else "")
