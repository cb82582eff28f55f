"""All public names lead somewhere, and none is missing."""

import pytest

import byol_explore


@pytest.mark.parametrize("name", byol_explore.__all__)
def test_a_public_name_can_be_used(name: str) -> None:
    assert getattr(byol_explore, name) is not None


def test_the_list_is_that_of_the_modules() -> None:
    homes = [name for names in byol_explore._HOMES.values() for name in names]
    assert sorted(homes) == sorted(byol_explore.__all__)
