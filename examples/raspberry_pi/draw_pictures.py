"""Draws a folder of pictures to try the camera example with: discs, bars and rings in front of changing light.

    python -m examples.raspberry_pi.draw_pictures pictures
"""

import sys
from pathlib import Path

import numpy as np
from PIL import Image, ImageDraw

THINGS = {"ball": (200, 60, 40), "ruler": (230, 200, 60), "ring": (60, 90, 200)}
EACH = 12
SIZE = (320, 240)


def draw_pictures(folder: Path) -> None:
    """Write EACH pictures of every thing, as folder/THING/NUMBER.jpg."""
    random = np.random.default_rng(0)
    for number in range(EACH):
        for thing, colour in THINGS.items():
            light = int(random.integers(90, 150))
            picture = Image.new("RGB", SIZE, (light, light, light))
            x, y = (int(value) for value in random.integers((120, 80), (200, 160)))
            draw = ImageDraw.Draw(picture)
            if thing == "ball":
                draw.ellipse((x - 50, y - 50, x + 50, y + 50), fill=colour)
            elif thing == "ruler":
                draw.rectangle((x - 100, y - 15, x + 100, y + 15), fill=colour)
            else:
                draw.ellipse((x - 60, y - 60, x + 60, y + 60), outline=colour, width=18)
            (folder / thing).mkdir(parents=True, exist_ok=True)
            picture.save(folder / thing / f"{number:02d}.jpg", quality=90)


if __name__ == "__main__":
    draw_pictures(Path(sys.argv[1]))
