"""Take a screenshot of a report's page.

python docs/screenshot.py docs/laptop/report/index.html docs/laptop.png

Needs headless Chromium, which `make browser` installs if it can. Reducing the colours would make the picture smaller,
but variants would look alike: a picture without the colour of every variant is not written.
"""

import re
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

import tyro
from PIL import Image

FLAGS = (
    "--headless=new", "--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-dev-shm-usage", "--hide-scrollbars",
    "--disable-background-networking", "--force-device-scale-factor=1", "--force-color-profile=srgb",
)  # fmt: skip
DRAWING_TIME = 10_000  # milliseconds of the page's virtual time


@dataclass(frozen=True)
class Screenshot:
    """Take a picture of the upper part of a report's page."""

    page: tyro.conf.Positional[Path]
    """index.html of a report."""
    picture: tyro.conf.Positional[Path]
    """The PNG to write."""
    width: int = 1200
    height: int = 2260


def main(command: Screenshot) -> None:
    if not command.page.is_file():
        sys.exit(f"error: {command.page} is no file: give the index.html of a report")
    picture = take_screenshot(command.page, command.width, command.height)
    if lost := lost_colours(picture, command.page.read_text(encoding="utf-8")):
        sys.exit(f"error: the picture lacks the colours of {', '.join(lost)}")
    picture.save(command.picture, "png", optimize=True)
    print(f"{command.picture}: {picture.width} x {picture.height}, {command.picture.stat().st_size / 1000:.0f} kB")


def take_screenshot(page: Path, width: int, height: int) -> Image.Image:
    """Take a screenshot of the top of the page."""
    chromium = shutil.which("chromium")
    if chromium is None:
        sys.exit("error: chromium is not installed: run `make browser`")
    with tempfile.TemporaryDirectory() as folder:
        shot = Path(folder) / "shot.png"
        subprocess.run(
            [chromium, *FLAGS, f"--user-data-dir={folder}/profile", f"--window-size={width},{height}",
             f"--virtual-time-budget={DRAWING_TIME}", f"--screenshot={shot}", page.resolve().as_uri()],
            check=True, stderr=subprocess.DEVNULL, timeout=120,
        )  # fmt: skip
        with Image.open(shot) as picture:
            return picture.convert("RGB")


def lost_colours(picture: Image.Image, page: str) -> list[str]:
    """Return the variants in the legend of a page whose colours are not in its picture."""
    legend = re.findall(r'data-variant="([^"]*)".*?light-dark\(#(\w{6}),', page)
    found = {colour for _, colour in picture.convert("RGB").getcolors(picture.width * picture.height) or []}
    return [variant for variant, colour in legend if tuple(bytes.fromhex(colour)) not in found]


if __name__ == "__main__":
    main(tyro.cli(Screenshot))
