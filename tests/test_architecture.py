"""Who may import whom: every import of the package is held against the layers that docs/architecture.md draws."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

import byol_explore

ROOT = Path(byol_explore.__file__).parent
DOCUMENT = ROOT.parents[1] / "docs" / "architecture.md"


def layers(text: str) -> list[list[str]]:
    """The lines of the document's first picture from the ground up: names, and then what they are."""
    picture = text.split("```")[1].strip()
    return [re.split(r" {2,}", line)[0].split() for line in reversed(picture.splitlines())]


LAYERS = layers(DOCUMENT.read_text())  # a layer may import itself and what stands before it
HEIGHT = {name: height for height, names in enumerate(LAYERS) for name in names}
MODULES = sorted(path for path in ROOT.rglob("*.py") if path.parent != ROOT or not path.name.startswith("__"))


def part_of(path: Path) -> str:
    """The package or the module of the root that a file belongs to."""
    return path.relative_to(ROOT).parts[0].removesuffix(".py")


def imported(node: ast.AST) -> Iterator[str]:
    """Parts of this package that code imports, wherever in it; what only types need does not count."""
    if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "byol_explore":
        names = [f"{node.module}.{alias.name}" for alias in node.names]
    else:
        names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
    yield from dict.fromkeys(name.split(".")[1] for name in names if name.startswith("byol_explore."))
    if not (isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"):
        for child in ast.iter_child_nodes(node):
            yield from imported(child)


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(ROOT)))
def test_a_module_imports_nothing_from_above(path: Path) -> None:
    mine = part_of(path)
    above = [name for name in imported(ast.parse(path.read_text())) if HEIGHT[name] > HEIGHT[mine]]
    assert not above, f"{mine} may not import {', '.join(above)}"


def test_a_violation_is_found() -> None:
    code = "def late():\n    from byol_explore.run.loop import TrainingLoop\n    import byol_explore.cli.main"
    assert list(imported(ast.parse(code))) == ["run", "cli"]


def test_the_picture_names_every_part_once() -> None:
    drawn = [name for names in LAYERS for name in names]
    assert sorted(drawn) == sorted({part_of(path) for path in MODULES})


@pytest.mark.parametrize("name", ["architecture.md", "method.md"])
def test_files_that_documents_name_are_there(name: str) -> None:
    named = set(re.findall(r"`([\w/]+\.py)`", (DOCUMENT.parent / name).read_text()))
    missing = [path for path in sorted(named) if not any((root / path).is_file() for root in (ROOT, ROOT.parents[1]))]
    assert named
    assert not missing
