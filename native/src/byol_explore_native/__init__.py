"""Load the compiled residual network of byol-explore; `byol_explore.networks.native_resnet` registers and calls it."""

import ctypes
from importlib.metadata import version
from pathlib import Path

__version__ = version("byol-explore-native")

_SUFFIXES = (".so", ".dylib")


def _load() -> ctypes.CDLL:
    found = [path for path in Path(__file__).parent.glob("libbyol_explore_native.*") if path.suffix in _SUFFIXES]
    if not found:
        raise ImportError("byol-explore-native has no library: install it again")
    return ctypes.CDLL(str(found[0]))


library = _load()
library.byol_explore_native_interface.restype = ctypes.c_int
library.byol_explore_instruction_set.restype = ctypes.c_char_p
library.byol_explore_use_instruction_set.argtypes = (ctypes.c_char_p,)
library.byol_explore_resnet_kept_size.restype = ctypes.c_int64
library.byol_explore_resnet_kept_size.argtypes = (
    *(ctypes.c_int64 for _ in range(3)),
    ctypes.POINTER(ctypes.c_int64),
    ctypes.c_int64,
    ctypes.c_bool,
)

INTERFACE: int = library.byol_explore_native_interface()  # changes with the arguments of the functions


def instruction_set() -> str:
    """Return the name of the instruction set in use: avx512, avx2 or baseline."""
    return library.byol_explore_instruction_set().decode()


def use_instruction_set(name: str) -> bool:
    """Use another instruction set, for tests. Returns False if this processor does not support it."""
    return bool(library.byol_explore_use_instruction_set(name.encode()))


def kept_size(shape: tuple[int, int, int], widths: tuple[int, ...], *, normalize: bool) -> int:
    """Return how many floats of an image the forward pass can keep for the backward pass; -1 if not supported."""
    array = (ctypes.c_int64 * len(widths))(*widths)
    return library.byol_explore_resnet_kept_size(*shape, array, len(widths), normalize)
