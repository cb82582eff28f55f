"""All that can be chosen by name. Light: nothing is imported before it is asked for."""

from collections.abc import Callable
from typing import TYPE_CHECKING

from byol_explore.registry import Factories, Registry

if TYPE_CHECKING:
    from byol_explore.algorithms.base import Algorithm
    from byol_explore.curiosity.base import Curiosity
    from byol_explore.envs.host import AnyEnvironment
    from byol_explore.networks.encoders import ObservationEncoder

METHODS: "Registry[type[Curiosity]]" = Registry(
    "method",
    {
        "byol-explore": "byol_explore.curiosity.byol_explore:BYOLExplore",
        "rnd": "byol_explore.curiosity.rnd:RND",
        "icm": "byol_explore.curiosity.icm:ICM",
        "none": "byol_explore.curiosity.none:NoCuriosity",
        "byol-hindsight": "byol_explore.curiosity.byol_hindsight:BYOLHindsight",
        "e3b": "byol_explore.curiosity.e3b:E3B",
        "noveld": "byol_explore.curiosity.noveld:NovelD",
        "disagreement": "byol_explore.curiosity.disagreement:Disagreement",
        "counts": "byol_explore.curiosity.counts:Counts",
        "re3": "byol_explore.curiosity.re3:RE3",
        "ngu": "byol_explore.curiosity.ngu:NGU",
    },
    base="byol_explore.curiosity.base:Curiosity",
)

ALGORITHMS: "Registry[type[Algorithm]]" = Registry(
    "algorithm",
    {
        "v-mpo": "byol_explore.algorithms.vmpo:VMPO",
        "ppo": "byol_explore.algorithms.ppo:PPO",
    },
    base="byol_explore.algorithms.base:Algorithm",
)

ENCODERS: "Registry[type[ObservationEncoder]]" = Registry(
    "encoder",
    {
        "grid": "byol_explore.networks.encoders:GridEncoder",
        "vector": "byol_explore.networks.encoders:VectorEncoder",
        "image": "byol_explore.networks.encoders:ImageEncoder",
        "atari": "byol_explore.networks.encoders:AtariEncoder",
        "hard-eight": "byol_explore.networks.encoders:HardEightEncoder",
        "tokens": "byol_explore.networks.words:TokensEncoder",
    },
    base="byol_explore.networks.encoders:ObservationEncoder",
)

ENVIRONMENTS: "Registry[Callable[..., AnyEnvironment]]" = Factories("environment", {})  # beside the families of envs/
