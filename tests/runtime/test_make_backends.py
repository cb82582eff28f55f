"""Tests of the choice of a backend for actors."""

import dataclasses
import sys

import pytest

from byol_explore.errors import UserError
from byol_explore.runtime.make import make_runtime
from host_worlds import Scripted, host_config


@pytest.mark.parametrize("inference", ["local", "central"])
def test_missing_ray_is_named(inference: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in sys.modules if name.split(".")[0] == "ray" or "runtime.cluster." in name]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "ray", None)
    config = dataclasses.replace(host_config(actor_backend="ray", inference=inference))
    with pytest.raises(UserError, match=r"^runtime\.actor_backend ray needs ray: pip install 'byol-explore\[ray\]'$"):
        make_runtime(config, [Scripted()])
