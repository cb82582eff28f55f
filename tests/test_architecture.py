"""docs/architecture.md against the package: its layers, its walks from an environment to a gradient, its files."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

import byol_explore

ROOT = Path(byol_explore.__file__).parent
DOCUMENT = ROOT.parents[1] / "docs" / "architecture.md"


def layers(text: str) -> list[list[str]]:
    """Return the packages of each line of the document's first picture, the lowest line first."""
    picture = text.split("```")[1].strip()
    return [re.split(r" {2,}", line)[0].split() for line in reversed(picture.splitlines())]


LAYERS = layers(DOCUMENT.read_text())  # a layer may import itself and what stands before it
HEIGHT = {name: height for height, names in enumerate(LAYERS) for name in names}
MODULES = sorted(path for path in ROOT.rglob("*.py") if path.parent != ROOT or not path.name.startswith("__"))


def part_of(path: Path) -> str:
    """Return the package, or the module of the root, that a file belongs to."""
    return path.relative_to(ROOT).parts[0].removesuffix(".py")


def imported(node: ast.AST) -> Iterator[str]:
    """Yield the parts of this package that code imports, also inside functions; imports for types do not count."""
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


def test_an_import_inside_a_function_counts() -> None:
    code = "def late():\n    from byol_explore.training.loop import TrainingLoop\n    import byol_explore.cli.main"
    assert list(imported(ast.parse(code))) == ["training", "cli"]


def test_every_package_is_drawn_once() -> None:
    drawn = [name for names in LAYERS for name in names]
    assert sorted(drawn) == sorted({part_of(path) for path in MODULES})


def test_files_that_documents_name_exist() -> None:
    documents = [*DOCUMENT.parent.glob("*.md"), ROOT.parents[1] / "README.md"]
    named = {path for each in documents for path in re.findall(r"`(\w+/[\w/]+\.py)`", each.read_text())}
    places = (ROOT, ROOT.parent, ROOT.parents[1])
    missing = [path for path in sorted(named) if not any((place / path).is_file() for place in places)]
    assert len(named) > 40
    assert not missing


# Walks


def walk(title: str) -> list[str]:
    """Return the modules of a numbered list of the document, in their order."""
    section = DOCUMENT.read_text().split(f"### {title}")[1].split("\n#")[0]
    return [path.removesuffix(".py") for path in re.findall(r"^\d+\. `([\w/]+\.py)`", section, flags=re.MULTILINE)]


def modules_imported_by(module: str) -> set[str]:
    """Return the modules of this package that a module imports, also inside functions."""
    found: set[str] = set()
    for node in ast.walk(ast.parse((ROOT / f"{module}.py").read_text())):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("byol_explore"):
            base = (node.module or "").removeprefix("byol_explore").lstrip(".").replace(".", "/")
            found |= {base, *(f"{base}/{alias.name}".lstrip("/") for alias in node.names)}
    return found


@pytest.mark.parametrize(("title", "most"), [("Inside jit", 10), ("Atari with central inference", 20)])
def test_a_walk_names_modules_that_know_each_other(title: str, most: int) -> None:
    """Each module of a walk imports another one of it, or is imported by one."""
    modules = walk(title)
    assert 5 < len(modules) == len(set(modules)) <= most
    imports = {module: modules_imported_by(module) & set(modules) - {module} for module in modules}
    alone = [each for each in modules if not imports[each] and not any(each in known for known in imports.values())]
    assert not alone


# Names


def definitions(path: Path) -> set[str]:
    """Return the names that a module defines: its own, and Class.member for each member of its classes."""
    found: set[str] = set()
    for node in ast.parse(path.read_text()).body:
        found |= {name for name in _names(node)}
        if isinstance(node, ast.ClassDef):
            found |= {f"{node.name}.{name}" for member in node.body for name in _names(member)}
    return found


def _names(node: ast.stmt) -> list[str]:
    if isinstance(node, ast.FunctionDef | ast.ClassDef):
        return [node.name]
    targets = node.targets if isinstance(node, ast.Assign) else [node.target] if isinstance(node, ast.AnnAssign) else []
    return [part.id for target in targets for part in ast.walk(target) if isinstance(part, ast.Name)]


def test_names_in_the_document_are_defined_where_it_says() -> None:
    """`module.py` `name`, and `Class.member` anywhere in the package."""
    text = DOCUMENT.read_text()
    placed = re.findall(r"`([\w/]+\.py)`\s+`([\w.]+)`", text)
    missing = [f"{path}: {name}" for path, name in placed if name not in definitions(ROOT / path)]
    members = set(re.findall(r"`([A-Z]\w*\.[a-z_]\w*)`", text))
    everywhere = set().union(*(definitions(path) for path in MODULES))
    missing += sorted(members - everywhere)
    assert len(placed) > 20
    assert len(members) > 10
    assert not missing


def test_a_name_that_is_not_defined_is_found() -> None:
    path = ROOT / "agent" / "learner.py"
    assert {"Learner", "Learner.update", "target_is_constant", "TRAJECTORY_ENV_AXES"} <= definitions(path)
    assert not {"Learner.learn", "update", "jax"} & definitions(path)


# Size


def test_modules_are_whole_ideas_of_readable_size() -> None:
    lines = sorted(len(path.read_text().splitlines()) for path in ROOT.rglob("*.py") if path.name != "__init__.py")
    assert len(lines) <= 160
    assert lines[len(lines) // 2] >= 140
    assert lines[-1] <= 400


def test_every_test_file_has_its_module() -> None:
    """`tests/PACKAGE/test_MODULE.py` or `tests/PACKAGE/test_MODULE_TOPIC.py`."""
    tests = DOCUMENT.parents[1] / "tests"
    orphans = []
    for path in sorted(tests.rglob("test_*.py")):
        package = path.parent.relative_to(tests)
        separate = ("benchmarks", "cluster", "drills", "envpools", "integrations", "native")
        if package == Path() or package.parts[0] in separate:
            continue
        names = [each.stem for each in (ROOT / package).glob("*.py")]
        if not any(path.stem == f"test_{name}" or path.stem.startswith(f"test_{name}_") for name in names):
            orphans.append(str(path.relative_to(tests)))
    assert not orphans
