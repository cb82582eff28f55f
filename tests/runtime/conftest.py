"""What the tests of several processes share."""

import pytest

from byol_explore.runtime import processes
from members import Store


@pytest.fixture
def store(monkeypatch: pytest.MonkeyPatch) -> Store:
    store = Store()
    monkeypatch.setattr(processes, "_store", lambda: store)
    monkeypatch.setattr(processes, "_LOOK", 20)
    monkeypatch.setattr(processes, "_PATIENCE", 0.2)
    monkeypatch.setattr(processes, "_LAST_WORDS", 0.0)
    return store
