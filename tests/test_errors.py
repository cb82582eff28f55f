"""Messages about unknown names."""

import pytest

from byol_explore.errors import unknown_name


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ("rdn", "unknown method 'rdn' (did you mean rnd?); choose from: byol-explore, rnd"),
        ("BYOL-Explor", "unknown method 'BYOL-Explor' (did you mean byol-explore?); choose from: byol-explore, rnd"),
        ("curious", "unknown method 'curious'; choose from: byol-explore, rnd"),
        (None, "unknown method 'None'; choose from: byol-explore, rnd"),
    ],
)
def test_unknown_name_suggests_the_most_similar_one(value: object, message: str) -> None:
    assert str(unknown_name("method", value, ["byol-explore", "rnd"])) == message
