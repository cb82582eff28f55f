"""`byol-explore envs`: the environments by name."""

import textwrap
from collections.abc import Sequence
from dataclasses import dataclass

from byol_explore.cli.parsing import parse


@dataclass(frozen=True)
class EnvsCommand:
    """List environments, or the settings that they take."""

    settings: bool = False
    """List the settings of every family, for `train --env-settings name=value ...`, with defaults."""


def run(arguments: Sequence[str]) -> None:
    if parse("envs", EnvsCommand, arguments).settings:
        _print_settings()
        return
    from byol_explore.envs.registry import env_families

    for family, names in env_families().items():
        print(f"{family}:")
        for name in names:
            print(f"  {name}")


def _print_settings() -> None:
    from byol_explore.envs.families import FAMILIES
    from byol_explore.envs.settings import described

    for family in FAMILIES:
        print(f"{family.title} ({family.prefix}...):")
        for name, default, text in described(family.settings):
            print(f"  {name} = {default}")
            print(textwrap.fill(text, 110, initial_indent="      ", subsequent_indent="      "))
    print("yours (package.module:Name):\n  the keyword arguments of what makes the environment")
    print("all others take none")
