"""`byol-explore envs`: the environments by name."""

from collections.abc import Sequence

from byol_explore.commands.parsing import no_arguments


def run(arguments: Sequence[str]) -> None:
    no_arguments("envs", "List environments.", arguments)
    from byol_explore.envs.registry import env_families

    for family, names in env_families().items():
        print(f"{family}:")
        for name in names:
            print(f"  {name}")
