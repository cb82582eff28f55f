"""The ray caster against a slow tracer, and properties that need no reference."""

from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from byol_explore.envs.hard_eight.raycaster import EYE, SKY, Camera, FieldOfView, Scene, render, visible_mask
from envs.hard_eight.tracer import trace

SCENES, BOXES, EDGED, SPHERES = 100, 14, 6, 4
HEIGHT, WIDTH = 24, 32
Draw = Callable[..., np.ndarray]


def draw_scene(rng: np.random.Generator) -> Scene:
    """Rotated boxes of all sizes, balls, and some empty slots."""
    half = rng.uniform(0.05, 1.0, (3, BOXES)) * (rng.random(BOXES) < 0.9)
    radius = rng.uniform(0.1, 0.6, SPHERES) * (rng.random(SPHERES) < 0.8)
    everything = BOXES + SPHERES
    parts = (
        rng.uniform(-4, 4, (3, BOXES)), half, rng.choice([0.0, 1.0], BOXES) * rng.uniform(-3, 3, BOXES),
        rng.uniform(-4, 4, (3, SPHERES)), radius, rng.uniform(30, 255, (everything, 3)),
        rng.choice([0.0, 0.5, 1.0], everything), rng.choice([0.0, 0.3], everything),
        rng.uniform(30, 255, (EDGED, 3)),
    )  # fmt: skip
    return Scene(*[jnp.asarray(part, jnp.float32) for part in parts])


def draw_camera(rng: np.random.Generator) -> Camera:
    numbers = rng.uniform(-4, 4, 3), rng.uniform(-4, 4), rng.uniform(-1.2, 1.2)
    return Camera(*[jnp.asarray(number, jnp.float32) for number in numbers])


@pytest.fixture(scope="module")
def draw() -> Draw:
    program = jax.jit(lambda scene, camera, lens: render(scene, camera, HEIGHT, WIDTH, lens))
    return lambda scene, camera, lens=EYE: np.asarray(program(scene, camera, lens))


def test_pixels_equal_a_slow_tracer(draw: Draw) -> None:
    """Pixels differ by at most rounding, except for rays that graze an edge or a border of the pattern."""
    others = 0
    for seed in range(SCENES):
        rng = np.random.default_rng(seed)
        scene, camera, lens = draw_scene(rng), draw_camera(rng), EYE if seed % 4 else FieldOfView(0.2, 0.15, 0.0)
        seen = draw(scene, camera, lens).astype(float)
        others += int(np.sum(np.any(np.abs(seen - trace(scene, camera, HEIGHT, WIDTH, lens)) > 1.5, axis=-1)))
    assert others <= 1e-3 * SCENES * HEIGHT * WIDTH


def draw_scenes(seeds: range) -> tuple[Scene, Camera]:
    """Batches [n, ...] of scenes and cameras."""
    pairs = [(draw_scene(rng), draw_camera(rng)) for rng in map(np.random.default_rng, seeds)]
    return jax.tree.map(lambda *xs: jnp.stack(xs), *pairs)


def test_vectorised_pass_equals_the_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    """The pass for accelerators also tests invisible primitives, which no ray may hit."""
    scenes, cameras = draw_scenes(range(SCENES))
    one_by_one = jax.jit(jax.vmap(lambda scene, camera: render(scene, camera, HEIGHT, WIDTH)))(scenes, cameras)
    monkeypatch.setattr(jax, "default_backend", lambda: "gpu")
    at_once = jax.jit(jax.vmap(lambda scene, camera: render(scene, camera, HEIGHT, WIDTH)))(scenes, cameras)
    np.testing.assert_array_equal(at_once, one_by_one)


def test_picture_is_the_same_in_nested_batches(draw: Draw) -> None:
    """The loop of a batch is as long as its fullest picture needs."""
    scenes, cameras = draw_scenes(range(6))
    scenes = scenes._replace(half=scenes.half.at[0].set(0.0), radius=scenes.radius.at[0].set(0.0))  # nothing at all
    apart = [draw(*jax.tree.map(lambda x, i=i: x[i], (scenes, cameras))) for i in range(6)]
    twice = jax.vmap(jax.vmap(lambda scene, camera: render(scene, camera, HEIGHT, WIDTH)))
    together = jax.jit(twice)(*jax.tree.map(lambda x: x.reshape(2, 3, *x.shape[1:]), (scenes, cameras)))
    np.testing.assert_array_equal(np.asarray(together).reshape(6, HEIGHT, WIDTH, 3), apart)
    assert np.all(apart[0] == np.array(SKY))


def test_scene_without_balls_is_rendered() -> None:
    rng = np.random.default_rng(5)
    scene, camera = draw_scene(rng), draw_camera(rng)
    empty = scene._replace(radius=jnp.zeros((SPHERES,)))
    looks = {name: getattr(scene, name)[:BOXES] for name in ("rgb", "glow", "pattern")}
    without = scene._replace(ball_centre=scene.ball_centre[:, :0], radius=scene.radius[:0], **looks)
    np.testing.assert_array_equal(*[render(each, camera, HEIGHT, WIDTH) for each in (empty, without)])


def test_most_primitives_are_invisible() -> None:
    """Otherwise putting visible primitives first would save nothing."""
    boxes, balls = jax.vmap(lambda scene, camera: visible_mask(scene, camera, EYE))(*draw_scenes(range(SCENES)))
    assert 0.02 < np.mean(boxes) < 0.4
    assert 0.02 < np.mean(balls) < 0.4


def empty(scene: Scene) -> Scene:
    return scene._replace(half=jnp.zeros_like(scene.half), radius=jnp.zeros_like(scene.radius))


def ahead(scene: Scene, *, box: float | None = None, ball: float | None = None) -> Scene:
    """One box and one ball to the east at the given distances, in the middle of the picture."""
    if box is not None:
        scene = scene._replace(
            half=scene.half.at[:, 0].set(0.2), centre=scene.centre.at[:, 0].set(jnp.array([box, 0.0, 0.0]))
        )
    if ball is not None:
        middle = scene.ball_centre.at[:, 0].set(jnp.array([ball, 0.0, 0.0]))
        scene = scene._replace(radius=scene.radius.at[0].set(0.2), ball_centre=middle)
    red, green = jnp.array([200.0, 0.0, 0.0]), jnp.array([0.0, 200.0, 0.0])
    return scene._replace(rgb=scene.rgb.at[0].set(red).at[BOXES].set(green))


EAST = Camera(jnp.zeros(3), jnp.zeros(()), jnp.zeros(()))


def middle_of(picture: np.ndarray) -> str:
    pixel = picture[HEIGHT // 2, WIDTH // 2]
    return "sky" if tuple(pixel) == SKY else "box" if pixel[0] > pixel[1] else "ball"


@pytest.mark.parametrize(
    ("box", "ball", "seen"),
    [(None, None, "sky"), (2.0, None, "box"), (None, 2.0, "ball"), (2.0, 3.0, "box"), (3.0, 2.0, "ball"),
     (-2.0, None, "sky"), (None, -2.0, "sky"), (0.0, 2.0, "ball"), (2.0, 0.0, "box")],
)  # fmt: skip
def test_nearest_object_hides_the_others(draw: Draw, box: float | None, ball: float | None, seen: str) -> None:
    """An object that contains the eye or lies behind it is invisible."""
    scene = ahead(empty(draw_scene(np.random.default_rng(0))), box=box, ball=ball)
    assert middle_of(draw(scene, EAST)) == seen


@pytest.mark.parametrize("rounding", [-1e-7, 0.0, 1e-7])
@pytest.mark.parametrize("side", [-1.0, 1.0])
def test_eye_in_the_plane_of_a_face_sees_the_box_on_its_side(draw: Draw, side: float, rounding: float) -> None:
    """The box lies north or south of the view axis and starts exactly at it."""
    scene = ahead(empty(draw_scene(np.random.default_rng(0))), box=3.0)
    centre = scene.centre.at[:, 0].set(jnp.array([3.0, side * (0.2 + rounding), 0.0]))
    scene = scene._replace(centre=centre, yaw=scene.yaw.at[0].set(0.0), half=scene.half.at[:, 0].set(0.2))
    columns = np.flatnonzero((draw(scene, EAST) != SKY).any((0, 2)))
    assert columns.size > 0
    assert (columns < WIDTH // 2).all() if side > 0 else (columns >= WIDTH // 2).all()


def test_picture_is_not_mirrored(draw: Draw) -> None:
    """Looking east, north is on the left; looking down, the former centre moves up."""
    scene = ahead(empty(draw_scene(np.random.default_rng(0))), box=3.0)
    picture = draw(scene._replace(centre=scene.centre.at[1, 0].set(1.0)), EAST)
    columns = np.flatnonzero((picture != SKY).any((0, 2)))
    assert columns.max() < WIDTH // 2
    picture = draw(scene, EAST._replace(pitch=jnp.float32(-0.3)))
    rows = np.flatnonzero((picture != SKY).any((1, 2)))
    assert rows.max() < HEIGHT // 2
