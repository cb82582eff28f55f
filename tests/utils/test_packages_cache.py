"""Tests of the compilation cache."""

from pathlib import Path
from typing import Any

import jax
import pytest

from byol_explore.utils.packages import MIN_COMPILE_SECONDS, cache_dir, enable_compilation_cache


def test_cache_directory_follows_the_environment_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BYOL_EXPLORE_CACHE", "/mine")
    monkeypatch.setenv("XDG_CACHE_HOME", "/cache")
    assert cache_dir() == Path("/mine")
    monkeypatch.delenv("BYOL_EXPLORE_CACHE")
    assert cache_dir() == Path("/cache/byol-explore")
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", "/home/me")
    assert cache_dir() == Path("/home/me/.cache/byol-explore")


@pytest.mark.parametrize(("before", "expected"), [(None, ["/mine", MIN_COMPILE_SECONDS]), ("/own", [])])
def test_cache_that_the_user_has_set_is_kept(
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
