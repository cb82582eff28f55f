"""The choice between byol-explore-native and the plain layers, with packages that are wrong in one way each."""

import logging
import sys
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from types import SimpleNamespace

import jax
import numpy as np
import pytest

from byol_explore.networks import native_resnet
from byol_explore.networks.paper_encoders import ResNet

SHAPE = (7, 6, 1)
IMAGES = np.zeros((2, *SHAPE), np.uint8)


@pytest.fixture(autouse=True)
def _forget() -> Iterator[None]:
    """Let each test, and those after it, look for the package anew."""
    native_resnet.load_package.cache_clear()
    native_resnet.is_correct.cache_clear()
    yield
    native_resnet.load_package.cache_clear()
    native_resnet.is_correct.cache_clear()


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """Return a function that installs a package with this source under the name that is looked for."""

    def install(source: str) -> None:
        (tmp_path / "native_for_test.py").write_text(source)
        monkeypatch.syspath_prepend(str(tmp_path))
        monkeypatch.setattr(native_resnet, "PACKAGE", "native_for_test")
        monkeypatch.delitem(sys.modules, "native_for_test", raising=False)

    return install


def assert_plain_after_one_line(caplog: pytest.LogCaptureFixture, words: str) -> None:
    """The network is encoded by the plain layers, and one line in the log says why."""
    network = ResNet(SHAPE, jax.random.key(0), normalize=True)
    with caplog.at_level(logging.WARNING):
        for _ in range(2):
            assert not native_resnet.can_encode(network, jax.numpy.asarray(IMAGES))
        assert native_resnet.announcement() is None
        program = str(jax.make_jaxpr(network)(IMAGES))
    assert "conv_general_dilated" in program or "dot_general" in program
    assert "byol_explore_resnet" not in program
    (record,) = caplog.records
    assert "byol-explore-native is not used" in record.message
    assert words in record.message
    assert "\n" not in record.message


def test_without_the_package_nothing_is_said(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    monkeypatch.setattr(native_resnet, "PACKAGE", "no_such_package_for_test")
    network = ResNet(SHAPE, jax.random.key(0), normalize=True)
    assert not native_resnet.can_encode(network, jax.numpy.asarray(IMAGES))
    assert native_resnet.announcement() is None
    assert not caplog.records


def test_a_package_of_another_version(install: Callable[[str], None], caplog: pytest.LogCaptureFixture) -> None:
    install("INTERFACE = 999\n")
    assert_plain_after_one_line(caplog, "its interface is 999, and this version needs 1")


def test_a_library_without_a_function(install: Callable[[str], None], caplog: pytest.LogCaptureFixture) -> None:
    install("import ctypes\nINTERFACE = 1\nlibrary = ctypes.CDLL(None)\n")
    assert_plain_after_one_line(caplog, "byol_explore_resnet_forward")


@pytest.mark.parametrize(
    "source", ["raise ImportError('two\\nlines')", "import no_such_module", "x = 1 / 0", "INTERFACE"]
)
def test_a_package_that_cannot_be_imported(
    source: str, install: Callable[[str], None], caplog: pytest.LogCaptureFixture
) -> None:
    install(source)
    assert_plain_after_one_line(caplog, "Error: ")


@pytest.mark.parametrize("factor", [1.01, np.nan])
def test_a_kernel_with_wrong_results(
    factor: float, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A stand-in for the package: its results are those of the plain layers, times a factor."""
    use_stand_in(factor, monkeypatch)
    assert_plain_after_one_line(caplog, "differ from the plain layers")


def test_a_kernel_with_right_results(monkeypatch: pytest.MonkeyPatch) -> None:
    use_stand_in(1.0, monkeypatch)
    assert native_resnet.can_encode(ResNet(SHAPE, jax.random.key(0), normalize=True), jax.numpy.asarray(IMAGES))
    assert native_resnet.announcement() == "byol-explore-native 7 runs the residual network (none)"


def use_stand_in(factor: float, monkeypatch: pytest.MonkeyPatch) -> None:
    package = SimpleNamespace(__version__="7", instruction_set=lambda: "none", kept_size=lambda *_, **__: 0)
    monkeypatch.setattr(native_resnet, "load_package", cache(lambda: package))
    monkeypatch.setattr(native_resnet, "encode", lambda network, image: factor * network(image))


def test_a_kernel_that_fails(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    def fail(*_: object) -> None:
        raise RuntimeError("no such\ntarget")

    use_stand_in(1.0, monkeypatch)
    monkeypatch.setattr(native_resnet, "encode", fail)
    assert_plain_after_one_line(caplog, "RuntimeError: no such target")


def test_the_check_may_come_while_a_program_is_traced(monkeypatch: pytest.MonkeyPatch) -> None:
    use_stand_in(1.0, monkeypatch)
    seen = []

    def traced(x: jax.Array) -> jax.Array:
        seen.append(native_resnet.is_correct(ResNet))
        return x

    jax.jit(jax.vmap(traced))(np.zeros(3))
    assert seen == [True]
