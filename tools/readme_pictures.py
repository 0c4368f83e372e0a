"""Make the README's pictures from a saved run: the page's answer, and the plot of memory, latency and quality.

    python tools/readme_pictures.py RUN [FOLDER]

RUN is a results.json or a folder that holds one; FOLDER is where the pictures go, docs/images by default. A browser
opens the page as its readers do, in light and 1180 pixels wide, so it needs Chromium and playwright. Prints the size of
each picture.
"""

from __future__ import annotations

import argparse
import io
import shutil
import tempfile
from pathlib import Path

from PIL import Image

from llm_bench_fixtures.report.files import write_report
from llm_bench_fixtures.results.metrics import registry
from llm_bench_fixtures.results.storage import read_run

IMAGES = Path(__file__).parents[1] / "docs" / "images"
BROWSERS = ("chromium", "chromium-browser", "google-chrome")
WIDTH, MARGIN = 1180, 16  # pixels of the page
COLOURS = 200  # colours of a picture: enough for smooth letters, and it takes half of the bytes
PLOT_WIDTH = 1000  # pixels


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else "")
    parser.add_argument("run", type=Path)
    parser.add_argument("folder", type=Path, nargs="?", default=IMAGES)
    given = parser.parse_args()
    saved = given.run / "results.json" if given.run.is_dir() else given.run
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder)
        write_report(read_run(saved), registry(), report)
        keep(answer_of(report / "report.html"), given.folder / "answer.png")
        keep(scaled(Image.open(report / "plots" / "memory.png")), given.folder / "tradeoff.png")


def answer_of(page: Path) -> Image.Image:
    """The page from its top to the end of what each reader should use."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=browser_path(), args=["--no-sandbox"])
        opened = browser.new_page(viewport={"width": WIDTH, "height": 900}, color_scheme="light")
        opened.goto(page.as_uri())
        cards = opened.locator(".cards").bounding_box()
        if cards is None:
            raise SystemExit("this run has no answer for any reader")
        bottom = cards["y"] + cards["height"] + MARGIN
        picture = opened.screenshot(clip={"x": 0, "y": 0, "width": WIDTH, "height": bottom}, full_page=True)
        browser.close()
    return Image.open(io.BytesIO(picture))


def browser_path() -> str:
    found = next(filter(None, map(shutil.which, BROWSERS)), None)
    if found is None:
        raise SystemExit(f"no browser: none of {', '.join(BROWSERS)} is installed")
    return found


def scaled(picture: Image.Image) -> Image.Image:
    height = round(picture.height * PLOT_WIDTH / picture.width)
    return picture.convert("RGB").resize((PLOT_WIDTH, height), Image.Resampling.LANCZOS)


def keep(picture: Image.Image, path: Path) -> None:
    """Save the picture as a PNG of few colours."""
    picture.convert("RGB").quantize(COLOURS, dither=Image.Dither.NONE).save(path, optimize=True)
    print(f"{path}: {picture.width} x {picture.height}, {path.stat().st_size / 1000:.0f} kB")


if __name__ == "__main__":
    main()
