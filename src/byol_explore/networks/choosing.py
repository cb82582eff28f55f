"""Which encoder reads what, and which entries of an observation f(o) encodes or only the core reads."""

import jax

from byol_explore.errors import UserError, unknown
from byol_explore.networks.dict_encoder import DictEncoder
from byol_explore.networks.encoders import ObservationEncoder
from byol_explore.registries import ENCODERS
from byol_explore.registry import is_import_path
from byol_explore.settings.parts import AUTO, NetworkConfig
from byol_explore.spaces import Grid, Image, Interface, Kind, Tokens, Vector
from byol_explore.types import Array

USUAL: dict[type[Kind], str] = {Grid: "grid", Vector: "vector", Image: "image", Tokens: "tokens"}
SENSED = (Vector, Tokens)  # kinds that the core can read without an encoder


def make_encoder(config: NetworkConfig, spec: Interface, key: Array, size: int | None = None) -> ObservationEncoder:
    """The encoder that the configuration names where it fits, and what is usual for the kind elsewhere."""
    size = config.embedding_size if size is None else size
    entries, chosen = encoded_entries(config, spec), encoder_names(config, spec)

    def make(name: str, key: Array) -> ObservationEncoder:
        encoder = ENCODERS.get(chosen[name]).make(entries[name], config, size, key)
        if is_import_path(chosen[name]):
            _check_embeddings(chosen[name], encoder, entries[name], size)
        return encoder

    if not isinstance(spec.observation, dict):
        return make("", key)
    *keys, linear_key = jax.random.split(key, len(entries) + 1) if len(entries) > 1 else (key, key)
    return DictEncoder({name: make(name, k) for name, k in zip(sorted(entries), keys, strict=True)}, size, linear_key)


def _check_embeddings(name: str, encoder: ObservationEncoder, kind: Kind, size: int) -> None:
    """A UserError if an encoder of others' code makes anything but embeddings [n, size] of observations [n, ...]."""
    several = jax.ShapeDtypeStruct((2, *kind.shape), kind.dtype)
    embedding = jax.eval_shape(encoder, several)
    if getattr(embedding, "shape", None) != (2, size):
        found = getattr(embedding, "shape", type(embedding).__name__)
        raise UserError(f"network.encoder {name!r} makes {found} of two observations: it must be {(2, size)}")


def encoder_names(config: NetworkConfig, spec: Interface) -> dict[str, str]:
    """The encoder of each entry that f(o) encodes; a UserError if the one that is named fits none of them."""
    kinds = {name: type(kind) for name, kind in encoded_entries(config, spec).items()}
    read = () if config.encoder == AUTO else ENCODERS.get(config.encoder).reads
    if config.encoder != AUTO and not set(kinds.values()) & set(read):
        fitting = [name for name in ENCODERS.names() if set(kinds.values()) & set(ENCODERS.get(name).reads)]
        raise UserError(
            f"network.encoder {config.encoder!r} does not fit the observations of {spec.name!r} "
            f"({', '.join(sorted({kind.__name__ for kind in kinds.values()}))}): choose from: {', '.join(fitting)}"
        )
    return {name: config.encoder if kind in read else _usual(kind, spec) for name, kind in kinds.items()}


def encoded_entries(config: NetworkConfig, spec: Interface) -> dict[str, Kind]:
    """What f(o) encodes; an observation of one kind is an entry without a name."""
    entries = _all_entries(spec)
    sensed = sensed_entries(config, spec)
    encoded = {name: kind for name, kind in entries.items() if name not in sensed}
    if not encoded:
        raise UserError(
            f"network.core_reads {', '.join(config.core_reads)} leaves no entry of the observations of {spec.name!r} "
            "to be encoded and predicted: take one out"
        )
    return encoded


def sensed_entries(config: NetworkConfig, spec: Interface) -> dict[str, Kind]:
    """What only the core reads."""
    entries, sensed = _all_entries(spec), {}
    for name in config.core_reads:
        if not name or name not in entries:
            readable = [each for each, kind in entries.items() if each and isinstance(kind, SENSED)]
            raise unknown("entry of network.core_reads", name, readable or ["(no entries)"])
        if not isinstance(entries[name], SENSED):
            accepted = " or ".join(kind.__name__ for kind in SENSED)
            raise UserError(f"network.core_reads {name!r} is {entries[name]}: the core reads {accepted} alone")
        sensed[name] = entries[name]
    return sensed


def _all_entries(spec: Interface) -> dict[str, Kind]:
    entries = spec.observation if isinstance(spec.observation, dict) else {"": spec.observation}
    for kind in entries.values():
        if not isinstance(kind, Kind):
            raise UserError(
                f"the observations of {spec.name!r} are specified as {kind}: they must be an Image, Vector, Grid or "
                "Tokens of byol_explore.spaces, or a flat dict of them"
            )
    return entries


def _usual(kind: type[Kind], spec: Interface) -> str:
    if kind not in USUAL:
        raise UserError(f"no encoder is usual for {kind.__name__} in the observations of {spec.name!r}: name one")
    return USUAL[kind]
