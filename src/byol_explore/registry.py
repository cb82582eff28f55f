"""Parts by name, entry point or import path; consent before importing code that a file names.

A name is looked up in this package, then among the entry points of installed packages; a name of the form
`my_package.bonuses:Density` is imported. Configurations keep the name, so every process that reads one finds the same
part. Nothing is imported before it is used.
"""

import os
import re
import sys
from collections.abc import Callable, Iterable, Mapping
from functools import cache
from importlib import import_module
from importlib.metadata import entry_points
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from byol_explore.errors import UserError, unknown_name
from byol_explore.utils.formatting import one_line

if TYPE_CHECKING:
    from byol_explore.agent.algorithm import Algorithm
    from byol_explore.curiosity.method import IntrinsicMethod
    from byol_explore.envs.interface import AnyEnvironment
    from byol_explore.networks.encoders import ObservationEncoder


T = TypeVar("T")
_IMPORT_PATH = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*:[A-Za-z_]\w*")


def is_import_path(name: str) -> bool:
    """Return True for names of the form `my_package.bonuses:Density`."""
    return isinstance(name, str) and _IMPORT_PATH.fullmatch(name) is not None


def import_object(kind: str, path: str) -> Any:
    """Import the object that a path names; raise a UserError if that fails."""
    module_name, name = path.split(":")
    try:
        module = import_module(module_name)
    except ModuleNotFoundError as error:
        raise UserError(
            f"{kind} {path!r}: there is no module {error.name!r}; it must be installed, in the current directory or "
            "in PYTHONPATH"
        ) from None
    except (Exception, SystemExit) as error:  # a script may exit
        reason = f"{type(error).__name__}: {one_line(error)}"
        raise UserError(f"{kind} {path!r} cannot be imported: {reason}") from error
    if not hasattr(module, name):
        raise UserError(f"{kind} {path!r}: module {module_name!r} has no {name!r}")
    return getattr(module, name)


class Registry(Generic[T]):
    """The parts of one kind. `base` is the import path of the class that all of them must subclass, if there is one."""

    def __init__(self, kind: str, built_in: Mapping[str, str], base: str = "") -> None:
        self.kind, self._paths, self._base = kind, dict(built_in), base
        self._added: dict[str, T] = {}

    @property
    def group(self) -> str:
        """Return the group of entry points, such as byol_explore.methods."""
        return f"byol_explore.{self.kind}s"

    def names(self) -> list[str]:
        """Return all names, without import paths."""
        return [*self._paths, *self._added, *_installed(self.group)]

    def register(self, name: str, part: T, *, replace: bool = False) -> None:
        """Add a part in this process only; other processes find parts by import path.

        Raises a UserError if it is not of this kind, or the name is taken. `replace` allows replacing an added part.
        """
        if not isinstance(name, str) or not name.strip() or name != name.strip() or "," in name:
            raise UserError(f"{self.kind} name {name!r}: it must be text without commas, and without spaces around it")
        if is_import_path(name):
            raise UserError(f"{self.kind} name {name!r} is an import path: choose one without a colon")
        if name in self.names() and not (replace and name in self._added):
            hint = "; replace=True replaces the one that was registered" if name in self._added else ""
            raise UserError(f"{self.kind} name {name!r} is taken: choose another one{hint}")
        self._check_part(name, part)
        self._added[name] = part

    def local_names(self) -> list[str]:
        """Return the names that were added in this process."""
        return list(self._added)

    def __contains__(self, name: str) -> bool:
        """Return True if a name is known or an import path, which is not followed here."""
        return name in self.names() or is_import_path(name)

    def check(self, name: str, *others: str) -> None:
        """Raise a UserError if a name is neither known nor one of `others`."""
        if name not in others and not self.__contains__(name):
            raise unknown_name(self.kind, name, [*others, *self.names(), "package.module:Name"])

    def get(self, name: str) -> T:
        """Return the part of that name."""
        self.check(name)
        if name in self._added:
            return self._added[name]
        path = self._paths.get(name) or _installed(self.group).get(name) or name
        part = import_object(self.kind, path)
        self._check_part(name, part)
        return part

    def _check_part(self, name: str, part: Any) -> None:
        """Raise a UserError if a part is not of this kind."""
        if not self._base:
            return
        base = import_object("base", self._base)
        if not (isinstance(part, type) and issubclass(part, base)):
            raise UserError(f"{self.kind} {name!r} is no subclass of {self._base.replace(':', '.')}")


class FactoryRegistry(Registry[T]):
    """A registry of classes and functions that make parts."""

    def _check_part(self, name: str, part: Any) -> None:
        if not callable(part):
            raise UserError(
                f"{self.kind} {name!r} is {one_line(repr(part), 80)}: it must be a class or a function that makes one"
            )


@cache
def _installed(group: str) -> dict[str, str]:
    """Return the import paths of a group of entry points, by name."""
    return {point.name: point.value for point in entry_points(group=group)}


METHODS: "Registry[type[IntrinsicMethod]]" = Registry(
    "method",
    {
        "byol-explore": "byol_explore.curiosity.byol_explore:BYOLExplore",
        "rnd": "byol_explore.curiosity.rnd:RND",
        "icm": "byol_explore.curiosity.icm:ICM",
        "none": "byol_explore.curiosity.method:NoCuriosity",
        "byol-hindsight": "byol_explore.curiosity.byol_hindsight:BYOLHindsight",
        "e3b": "byol_explore.curiosity.e3b:E3B",
        "noveld": "byol_explore.curiosity.noveld:NovelD",
        "disagreement": "byol_explore.curiosity.disagreement:Disagreement",
        "counts": "byol_explore.curiosity.counts:Counts",
        "re3": "byol_explore.curiosity.re3:RE3",
        "ngu": "byol_explore.curiosity.ngu:NGU",
    },
    base="byol_explore.curiosity.method:IntrinsicMethod",
)

ALGORITHMS: "Registry[type[Algorithm]]" = Registry(
    "algorithm",
    {
        "v-mpo": "byol_explore.agent.algorithm:VMPO",
        "ppo": "byol_explore.agent.algorithm:PPO",
    },
    base="byol_explore.agent.algorithm:Algorithm",
)

ENCODERS: "Registry[type[ObservationEncoder]]" = Registry(
    "encoder",
    {
        "grid": "byol_explore.networks.encoders:GridEncoder",
        "vector": "byol_explore.networks.encoders:VectorEncoder",
        "image": "byol_explore.networks.encoders:ImageEncoder",
        "atari": "byol_explore.networks.paper_encoders:AtariEncoder",
        "hard-eight": "byol_explore.networks.paper_encoders:HardEightEncoder",
        "tokens": "byol_explore.networks.paper_encoders:TokensEncoder",
    },
    base="byol_explore.networks.encoders:ObservationEncoder",
)

ENVIRONMENTS: "Registry[Callable[..., AnyEnvironment]]" = FactoryRegistry("environment", {})  # of users


TRUST_ENV_VAR = "BYOL_EXPLORE_TRUST"
TRUST_FLAG = "--trust"


def trust_external_code() -> None:
    """Allow importing code that run directories and studies name, in this process and its children."""
    os.environ[TRUST_ENV_VAR] = "1"


def require_consent(names: Iterable[str], source: Path | str) -> None:
    """Raise a UserError if there is external code to import, unless the user agrees or has agreed to it."""
    names = list(names)
    if not names or os.environ.get(TRUST_ENV_VAR) == "1":
        return
    words = f"{source} names code outside this package: {', '.join(names)}"
    if sys.stdin is not None and sys.stdin.isatty() and sys.stderr.isatty():
        print(f"{words}\nimport and run it? [y/N] ", end="", file=sys.stderr, flush=True)
        if sys.stdin.readline().strip().lower() in ("y", "yes"):
            trust_external_code()
            return
    raise UserError(f"{words}; if you know it, add {TRUST_FLAG} or set {TRUST_ENV_VAR}=1")
