"""Parts by name, by entry point and by import path."""

from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Any

import pytest

from byol_explore import registry
from byol_explore.config.presets import PRESETS, make_config
from byol_explore.errors import UserError
from byol_explore.registry import ALGORITHMS, ENCODERS, ENVIRONMENTS, METHODS, Registry, is_import_path


@pytest.fixture
def parts() -> Registry[object]:
    return Registry("part", {"path": "pathlib:Path"})


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("a:B", True), ("a.b_c.d:E1", True), ("a", False), ("a:", False), (":b", False), ("a:b:c", False),
        ("a-b:c", False), ("a.b", False), ("1a:b", False), ("a:b c", False),
    ],
)  # fmt: skip
def test_import_paths_are_recognised(name: str, expected: bool) -> None:
    assert is_import_path(name) is expected


def test_built_in_added_and_by_import_path(parts: Registry[object]) -> None:
    parts.register("mine", 7)
    assert parts.get("path") is Path
    assert parts.get("mine") == 7
    assert parts.get("pathlib:PurePath") is __import__("pathlib").PurePath
    assert parts.names() == ["path", "mine"]


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("path", "part name 'path' is taken: choose another one$"),
        ("mine", "part name 'mine' is taken: choose another one; replace=True replaces the one"),
        ("pathlib:Path", "part name 'pathlib:Path' is an import path"),
        ("", "part name '': it must be text"),
        (" a", "part name ' a': it must be text without commas, and without spaces"),
        ("a,b", "part name 'a,b': it must be text without commas"),
        (7, "part name 7: it must be text"),
    ],
)
def test_a_name_that_is_taken_or_none_is_refused(parts: Registry[object], name: Any, message: str) -> None:
    parts.register("mine", 7)
    with pytest.raises(UserError, match=f"^{message}"):
        parts.register(name, 8)
    assert (parts.get("path"), parts.get("mine")) == (Path, 7)


def test_only_added_parts_may_be_replaced(parts: Registry[object]) -> None:
    parts.register("mine", 7)
    parts.register("mine", 8, replace=True)
    assert parts.get("mine") == 8
    with pytest.raises(UserError, match="'path' is taken"):
        parts.register("path", 8, replace=True)


def test_parts_of_another_kind_are_not_added() -> None:
    for kinds in (METHODS, ALGORITHMS, ENCODERS, PRESETS):
        with pytest.raises(UserError, match=f"^{kinds.kind} 'mine' is no "):
            kinds.register("mine", 7)  # pyright: ignore[reportArgumentType]
    with pytest.raises(UserError, match=r"^environment 'mine' is 7: it must be a class or a function"):
        ENVIRONMENTS.register("mine", 7)  # pyright: ignore[reportArgumentType]
    with pytest.raises(UserError, match=r"^environment 'math:pi' is 3\.14.*: it must be a class or a function"):
        ENVIRONMENTS.get("math:pi")
    assert not any(kinds.__contains__("mine") for kinds in (METHODS, ALGORITHMS, ENCODERS, PRESETS, ENVIRONMENTS))


def test_packages_announce_theirs(parts: Registry[object], monkeypatch: pytest.MonkeyPatch) -> None:
    points = [EntryPoint("theirs", "pathlib:PurePosixPath", "byol_explore.parts")]
    monkeypatch.setattr(registry, "entry_points", lambda group: [p for p in points if p.group == group])
    registry._installed.cache_clear()
    assert parts.names() == ["path", "theirs"]
    assert parts.get("theirs") is __import__("pathlib").PurePosixPath
    registry._installed.cache_clear()


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("path2", r"unknown part 'path2' \(did you mean path\?\); choose from: path, package\.module:Name"),
        ("no_such_module:X", r"part 'no_such_module:X': there is no module 'no_such_module'"),
        ("pathlib:Nothing", r"part 'pathlib:Nothing': module 'pathlib' has no 'Nothing'"),
    ],
)
def test_failed_imports_are_errors_of_one_line(parts: Registry[object], name: str, message: str) -> None:
    with pytest.raises(UserError, match=message) as raised:
        parts.get(name)
    assert "\n" not in str(raised.value)


def test_a_module_that_breaks_is_the_users(
    parts: Registry[object], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, code in (("breaking", "1 / 0"), ("misspelt", "import math; math.cosine"), ("leaving", "exit(5)")):
        (tmp_path / f"{name}.py").write_text(f"{code}\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    with pytest.raises(UserError, match="'breaking:X' cannot be imported: ZeroDivisionError: division by zero"):
        parts.get("breaking:X")
    with pytest.raises(UserError, match="'misspelt:X' cannot be imported: AttributeError: module 'math' has no"):
        parts.get("misspelt:X")
    with pytest.raises(UserError, match="'leaving:X' cannot be imported: SystemExit: 5"):
        parts.get("leaving:X")


@pytest.mark.parametrize("name", ["pathlib:Path", "math:pi", "math:sin"])
def test_a_part_of_another_class_is_refused(name: str) -> None:
    for kinds in (METHODS, ALGORITHMS, ENCODERS):
        with pytest.raises(UserError, match=rf"{kinds.kind} '{name}' is no subclass of byol_explore\.\w+\.\w+\.[A-Z]"):
            kinds.get(name)
    with pytest.raises(UserError, match=rf"preset '{name}' is no byol_explore\.config\.presets\.Preset"):
        make_config(name)
