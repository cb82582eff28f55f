"""Test that Ray has the private names that runtime/cluster/ray_client.py uses."""

import ray


def test_installed_ray_has_the_private_names_that_are_used() -> None:
    """Without them a private cluster would listen on all interfaces, or accept connections without a token."""
    used = {
        ray._private.ray_constants: "ENABLE_RAY_CLUSTER",
        ray._raylet.Config: "initialize",
        ray._raylet.AuthenticationTokenLoader: "instance",
        ray._raylet.AuthenticationTokenLoader.instance(): "reset_cache",
    }
    for owner, name in used.items():
        assert hasattr(owner, name), f"ray {ray.__version__} has no {name} in {owner}: adapt _reload_environment"
