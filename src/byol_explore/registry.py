"""Parts by name: built in, of installed packages, or anybody's by import path.

A name is looked up among those of this package, then among the entry points of installed packages, and a name like
`my_package.bonuses:Density` is imported. That name is what a configuration keeps, so every process that reads the
configuration finds the same part. Code is imported when it is asked for, and not before.
"""

import re
from collections.abc import Mapping
from functools import cache
from importlib import import_module
from importlib.metadata import entry_points
from typing import Any, Generic, TypeVar

from byol_explore.errors import UserError, one_line, unknown

Part = TypeVar("Part")
_IMPORT_PATH = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*:[A-Za-z_]\w*")


def is_import_path(name: str) -> bool:
    """Whether a name is one like `my_package.bonuses:Density`."""
    return isinstance(name, str) and _IMPORT_PATH.fullmatch(name) is not None


def import_part(kind: str, path: str) -> Any:
    """What an import path names; a UserError in one line if that cannot be had."""
    module_name, name = path.split(":")
    try:
        module = import_module(module_name)
    except ModuleNotFoundError as error:
        raise UserError(
            f"{kind} {path!r}: there is no module {error.name!r}; it must be installed, or in the directory "
            "where you are or another one of PYTHONPATH"
        ) from None
    except (Exception, SystemExit) as error:  # a script may leave
        words = " ".join(str(error).split())
        raise UserError(f"{kind} {path!r} cannot be imported: {type(error).__name__}: {words}") from error
    if not hasattr(module, name):
        raise UserError(f"{kind} {path!r}: module {module_name!r} has no {name!r}")
    return getattr(module, name)


class Registry(Generic[Part]):
    """The parts of one kind; `base` is the import path of the class that all of them are subclasses of, if any is."""

    def __init__(self, kind: str, built_in: Mapping[str, str], base: str = "") -> None:
        self.kind, self._paths, self._base = kind, dict(built_in), base
        self._added: dict[str, Part] = {}

    @property
    def group(self) -> str:
        """The entry points that packages announce their parts in: byol_explore.methods and its like."""
        return f"byol_explore.{self.kind}s"

    def names(self) -> list[str]:
        """All but import paths."""
        return [*self._paths, *self._added, *_installed(self.group)]

    def add(self, name: str, part: Part, *, replace: bool = False) -> None:
        """Make a part known in this process alone; an import path is known in all of them.

        A UserError if it is not of this kind, or if the name is taken: by `replace` only what was added may be.
        """
        if not isinstance(name, str) or not name.strip() or name != name.strip() or "," in name:
            raise UserError(f"{self.kind} name {name!r}: it must be text without commas, and without spaces around it")
        if is_import_path(name):
            raise UserError(f"{self.kind} name {name!r} is an import path: choose one without a colon")
        if name in self.names() and not (replace and name in self._added):
            hint = "; replace=True takes it away from what was registered" if name in self._added else ""
            raise UserError(f"{self.kind} name {name!r} is taken: choose another one{hint}")
        self._check_part(name, part)
        self._added[name] = part

    def added(self) -> list[str]:
        """Names that are known in this process alone."""
        return list(self._added)

    def knows(self, name: str) -> bool:
        """Whether a name can be looked up; what an import path leads to is seen only when it is followed."""
        return name in self.names() or is_import_path(name)

    def check(self, name: str) -> None:
        """A UserError if a name cannot be looked up."""
        if not self.knows(name):
            raise unknown(self.kind, name, [*self.names(), "package.module:Name"])

    def get(self, name: str) -> Part:
        """The part of that name."""
        self.check(name)
        if name in self._added:
            return self._added[name]
        path = self._paths.get(name) or _installed(self.group).get(name) or name
        part = import_part(self.kind, path)
        self._check_part(name, part)
        return part

    def _check_part(self, name: str, part: Any) -> None:
        """A UserError if a part is not of this kind."""
        if not self._base:
            return
        base = import_part("base", self._base)
        if not (isinstance(part, type) and issubclass(part, base)):
            raise UserError(f"{self.kind} {name!r} is no subclass of {self._base.replace(':', '.')}")


class Factories(Registry[Part]):
    """Whose parts are called to make something."""

    def _check_part(self, name: str, part: Any) -> None:
        if not callable(part):
            raise UserError(
                f"{self.kind} {name!r} is {one_line(repr(part), 80)}: it must be a class or a function that makes one"
            )


@cache
def _installed(group: str) -> dict[str, str]:
    """Import paths that installed packages announce, by name."""
    return {point.name: point.value for point in entry_points(group=group)}
