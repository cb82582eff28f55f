"""Fixtures of the tests of several processes."""

import pytest

from byol_explore.runtime import distributed
from thread_group import KeyValueStore


@pytest.fixture
def store(monkeypatch: pytest.MonkeyPatch) -> KeyValueStore:
    """Give all processes, which are threads here, one key-value store and short time limits."""
    store = KeyValueStore()
    monkeypatch.setattr(distributed, "_key_value_store", lambda: store)
    monkeypatch.setattr(distributed, "_POLL_MILLISECONDS", 20)
    monkeypatch.setattr(distributed, "_FAILURE_SECONDS", 0.2)
    monkeypatch.setattr(distributed, "_GRACE_SECONDS", 0.0)
    return store
