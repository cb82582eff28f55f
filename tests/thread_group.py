"""A process group inside one process: its members are threads that share a key-value store."""

import threading
from collections.abc import Callable
from typing import Any

from byol_explore.config.sections import DistributedConfig
from byol_explore.runtime.distributed import DistributedProcesses

COUNT = 3


class KeyValueStore:
    """The coordinator's key-value store, for threads."""

    def __init__(self) -> None:
        self.values: dict[str, str] = {}
        self.changed = threading.Condition()
        self.is_gone = False

    def key_value_set(self, key: str, value: str) -> None:
        self._check()
        with self.changed:
            if key in self.values:
                raise RuntimeError(f"ALREADY_EXISTS: Config key {key} already exists.")
            self.values[key] = value
            self.changed.notify_all()

    def blocking_key_value_get(self, key: str, milliseconds: int) -> str:
        self._check()
        with self.changed:
            if not self.changed.wait_for(lambda: key in self.values or self.is_gone, milliseconds / 1000):
                raise RuntimeError(f"DEADLINE_EXCEEDED: GetKeyValue() timed out with key: {key}")
            self._check()
            return self.values[key]

    def key_value_delete(self, key: str) -> None:
        with self.changed:
            self.values.pop(key, None)

    def key_value_dir_get(self, folder: str) -> list[tuple[str, str]]:
        self._check()
        return [(key, value) for key, value in self.values.items() if key.startswith(f"{folder}/")]

    def _check(self) -> None:
        if self.is_gone:
            raise RuntimeError("UNAVAILABLE: failed to connect to all addresses")


def make_processes(count: int = COUNT) -> list[DistributedProcesses]:
    """Return one end of the group per thread."""
    return [DistributedProcesses(DistributedConfig("127.0.0.1:1", count, index)) for index in range(count)]


def run_in_threads(*functions: Callable[[], Any]) -> list[Any]:
    """Return the results or exceptions of functions that run in threads."""
    results: list[Any] = [None] * len(functions)

    def run(index: int) -> None:
        try:
            results[index] = functions[index]()
        except BaseException as error:
            results[index] = error

    threads = [threading.Thread(target=run, args=(index,), daemon=True) for index in range(len(functions))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
        assert not thread.is_alive(), "a function hangs"
    return results
