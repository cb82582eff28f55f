"""The ray-caster against the obvious tracer, and what can be told without one."""

from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from byol_explore.envs.worlds.hard_eight.rendering import EYE, SKY, Camera, Lens, Scene, in_sight, render
from envs.hard_eight.tracer import trace

SCENES, BOXES, EDGED, SPHERES = 100, 14, 6, 4
HEIGHT, WIDTH = 24, 32
Draw = Callable[..., np.ndarray]


def draw_scene(rng: np.random.Generator) -> Scene:
    """Boxes of all turns and sizes, balls, and some slots that are empty."""
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
    """All pixels are equal to a byte's rounding, but for rays that graze an edge or a border of the pattern."""
    others = 0
    for seed in range(SCENES):
        rng = np.random.default_rng(seed)
        scene, camera, lens = draw_scene(rng), draw_camera(rng), EYE if seed % 4 else Lens(0.2, 0.15, 0.0)
        seen = draw(scene, camera, lens).astype(float)
        others += int(np.sum(np.any(np.abs(seen - trace(scene, camera, HEIGHT, WIDTH, lens)) > 1.5, axis=-1)))
    assert others <= 1e-3 * SCENES * HEIGHT * WIDTH


def drawn(seeds: range) -> tuple[Scene, Camera]:
    """Many of both, [n, ...]."""
    pairs = [(draw_scene(rng), draw_camera(rng)) for rng in map(np.random.default_rng, seeds)]
    return jax.tree.map(lambda *xs: jnp.stack(xs), *pairs)


def test_all_boxes_at_once_give_the_same_pictures(monkeypatch: pytest.MonkeyPatch) -> None:
    """As it is done where there is no CPU: also of what is known not to be in sight, which no ray may hit."""
    scenes, cameras = drawn(range(SCENES))
    one_by_one = jax.jit(jax.vmap(lambda scene, camera: render(scene, camera, HEIGHT, WIDTH)))(scenes, cameras)
    monkeypatch.setattr(jax, "default_backend", lambda: "gpu")
    at_once = jax.jit(jax.vmap(lambda scene, camera: render(scene, camera, HEIGHT, WIDTH)))(scenes, cameras)
    np.testing.assert_array_equal(at_once, one_by_one)


def test_a_picture_is_the_same_in_a_batch_of_batches(draw: Draw) -> None:
    """Loops are as long as the fullest picture needs."""
    scenes, cameras = drawn(range(6))
    scenes = scenes._replace(half=scenes.half.at[0].set(0.0), radius=scenes.radius.at[0].set(0.0))  # nothing at all
    apart = [draw(*jax.tree.map(lambda x, i=i: x[i], (scenes, cameras))) for i in range(6)]
    twice = jax.vmap(jax.vmap(lambda scene, camera: render(scene, camera, HEIGHT, WIDTH)))
    together = jax.jit(twice)(*jax.tree.map(lambda x: x.reshape(2, 3, *x.shape[1:]), (scenes, cameras)))
    np.testing.assert_array_equal(np.asarray(together).reshape(6, HEIGHT, WIDTH, 3), apart)
    assert np.all(apart[0] == np.array(SKY))


def test_a_world_without_balls_has_a_picture() -> None:
    rng = np.random.default_rng(5)
    scene, camera = draw_scene(rng), draw_camera(rng)
    empty = scene._replace(radius=jnp.zeros((SPHERES,)))
    looks = {name: getattr(scene, name)[:BOXES] for name in ("rgb", "glow", "pattern")}
    without = scene._replace(ball_centre=scene.ball_centre[:, :0], radius=scene.radius[:0], **looks)
    np.testing.assert_array_equal(*[render(each, camera, HEIGHT, WIDTH) for each in (empty, without)])


def test_most_of_what_there_is_is_not_in_sight() -> None:
    """Else the order of things would save nothing."""
    boxes, balls = jax.vmap(lambda scene, camera: in_sight(scene, camera, EYE))(*drawn(range(SCENES)))
    assert 0.02 < np.mean(boxes) < 0.4
    assert 0.02 < np.mean(balls) < 0.4


def empty(scene: Scene) -> Scene:
    return scene._replace(half=jnp.zeros_like(scene.half), radius=jnp.zeros_like(scene.radius))


def ahead(scene: Scene, *, box: float | None = None, ball: float | None = None) -> Scene:
    """One box and one ball to the east at these distances, in the middle of the picture."""
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
def test_the_nearest_is_seen(draw: Draw, box: float | None, ball: float | None, seen: str) -> None:
    """What the eye is inside of is not seen, nor what is behind it."""
    scene = ahead(empty(draw_scene(np.random.default_rng(0))), box=box, ball=ball)
    assert middle_of(draw(scene, EAST)) == seen


@pytest.mark.parametrize("rounding", [-1e-7, 0.0, 1e-7])
@pytest.mark.parametrize("side", [-1.0, 1.0])
def test_an_eye_in_the_plane_of_a_face_sees_a_box_where_it_is(draw: Draw, side: float, rounding: float) -> None:
    """The box lies to the north or to the south of the view's middle and begins exactly there."""
    scene = ahead(empty(draw_scene(np.random.default_rng(0))), box=3.0)
    centre = scene.centre.at[:, 0].set(jnp.array([3.0, side * (0.2 + rounding), 0.0]))
    scene = scene._replace(centre=centre, yaw=scene.yaw.at[0].set(0.0), half=scene.half.at[:, 0].set(0.2))
    columns = np.flatnonzero((draw(scene, EAST) != SKY).any((0, 2)))
    assert columns.size > 0
    assert (columns < WIDTH // 2).all() if side > 0 else (columns >= WIDTH // 2).all()


def test_left_is_left_and_up_is_up(draw: Draw) -> None:
    """Who looks east has the north to the left; who looks down sees what was in the middle further up."""
    scene = ahead(empty(draw_scene(np.random.default_rng(0))), box=3.0)
    picture = draw(scene._replace(centre=scene.centre.at[1, 0].set(1.0)), EAST)
    columns = np.flatnonzero((picture != SKY).any((0, 2)))
    assert columns.max() < WIDTH // 2
    picture = draw(scene, EAST._replace(pitch=jnp.float32(-0.3)))
    rows = np.flatnonzero((picture != SKY).any((1, 2)))
    assert rows.max() < HEIGHT // 2
