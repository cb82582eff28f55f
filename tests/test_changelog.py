"""CHANGELOG.md against the package: no name of its left columns is defined where it stood."""

import ast
import re
from pathlib import Path

import byol_explore

ROOT = Path(byol_explore.__file__).parent
TEXT = (ROOT.parents[1] / "CHANGELOG.md").read_text()


def rows(title: str) -> list[list[str]]:
    """Return the cells of a table of the changelog, without its head."""
    section = TEXT.split(f"### {title}\n")[1].split("\n### ")[0]
    lines = [line for line in section.splitlines() if line.startswith("|")][2:]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]


def targets() -> dict[str, list[str]]:
    """Return where each module of before has gone."""
    found: dict[str, list[str]] = {}
    for before, now in rows("Modules (below `byol_explore`)"):
        for module in before.strip("`").split(", "):
            found.setdefault(module, []).append(now.strip("`"))
    return found


def names(node: ast.Module | ast.ClassDef) -> dict[str, ast.stmt]:
    """Return what a module or a class defines."""
    found: dict[str, ast.stmt] = {}
    for each in node.body:
        if isinstance(each, ast.FunctionDef | ast.ClassDef):
            found[each.name] = each
        elif isinstance(each, ast.AnnAssign) and isinstance(each.target, ast.Name):
            found[each.target.id] = each
        elif isinstance(each, ast.Assign):
            found |= {
                part.id: each for target in each.targets for part in ast.walk(target) if isinstance(part, ast.Name)
            }
    return found


def test_no_name_of_before_is_defined_where_it_stood() -> None:
    homes, left = targets(), []
    renames = {
        module.strip("`"): [pair.split(" → ") for pair in pairs.split("; ")]
        for module, pairs in rows("Classes, functions and fields")
    }
    given = {new for pairs in renames.values() for _, new in pairs}
    assert sum(map(len, renames.values())) > 900
    for module, pairs in renames.items():
        classes = {old: new for old, new in pairs if "." not in old}
        for home in homes.get(module, [module]):
            path = ROOT / f"{home}.py"
            defined = names(ast.parse(path.read_text())) if path.exists() else {}
            for old, new in pairs:
                owner, _, member = old.rpartition(".")
                if not owner:
                    left += [f"{home}: {old}"] if old in defined and old not in given else []
                    continue
                node = defined.get(classes.get(owner, owner))
                if isinstance(node, ast.ClassDef) and member in names(node) and member != new and member not in given:
                    left.append(f"{home}: {owner}.{member}")
    assert not left


def test_no_metric_or_setting_of_before_is_left() -> None:
    old = [re.sub(r"^\w+\.", "", row[0].strip("`")) for row in rows("Metrics")]
    old = [
        name for name in old if name not in ("elapsed", "episodes", "distance", "invariance")
    ]  # words of other things
    used = {
        f"{path.relative_to(ROOT)}: {name}"
        for path in ROOT.rglob("*.py")
        for name in old
        if re.search(rf"[\"']{name}[\"']", path.read_text())
    }
    assert not used
