"""Where compiled programs are kept."""

from pathlib import Path
from typing import Any

import jax
import pytest

from byol_explore.runtime.compilation import cache_dir, enable_compilation_cache


def test_the_directory_is_the_users_choice(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BYOL_EXPLORE_CACHE", "/mine")
    monkeypatch.setenv("XDG_CACHE_HOME", "/cache")
    assert cache_dir() == Path("/mine")
    monkeypatch.delenv("BYOL_EXPLORE_CACHE")
    assert cache_dir() == Path("/cache/byol-explore")
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", "/home/me")
    assert cache_dir() == Path("/home/me/.cache/byol-explore")


@pytest.mark.parametrize(("before", "expected"), [(None, ["/mine", 1.0]), ("/own", [])])
def test_a_cache_of_the_users_own_is_left_as_it_is(
    monkeypatch: pytest.MonkeyPatch, before: str | None, expected: list[Any]
) -> None:
    class Settings:
        jax_compilation_cache_dir = before
        changes: list[Any] = []  # noqa: RUF012

        def update(self, name: str, value: Any) -> None:
            self.changes.append(value)

    settings = Settings()
    monkeypatch.setenv("BYOL_EXPLORE_CACHE", "/mine")
    monkeypatch.setattr(jax, "config", settings)
    enable_compilation_cache()
    assert settings.changes == expected
