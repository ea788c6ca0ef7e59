"""Take the pictures of the explorer in docs/images from two runs on the built-in market: python docs/make_screenshots.py

Needs what `make browser` installs, Chromium and selenium, and the font Noto Sans. With run folders as arguments these are
shown instead.
"""

from __future__ import annotations

import io
import json
import sys
import tempfile
from pathlib import Path
from typing import Any
from urllib.request import Request, urlopen

import numpy as np
from PIL import Image

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT))

from tests.browser.chromium import PHONE, Page, chromium  # noqa: E402
from tests.browser.serving import served  # noqa: E402

from gmlfm import Recommender, load_dataset  # noqa: E402

DESKTOP, SCALE = (1360, 850), 1.25
_MOST_BYTES = 250_000
_COLOURS = (256, 160, 96, 64)
_MANY, _ITEMS = 60, 10  # users among whom one is looked for who shows much
_SHARED = 6


def trained(folder: Path) -> list[str]:
    data = load_dataset("bazaar")
    runs = {"gml-fm": Recommender("gml-fm", epochs=6, seed=0), "fm": Recommender("fm", epochs=6, seed=0)}
    for name, recommender in runs.items():
        recommender.fit(data, out=folder / name)
    return [str(folder / name) for name in runs]


def asked(url: str, path: str, body: dict[str, Any] | None = None) -> Any:
    data = None if body is None else json.dumps(body).encode()
    with urlopen(Request(url + path, data, {"Content-Type": "application/json"})) as answer:
        return json.load(answer)


def chosen_users(url: str, runs: list[str]) -> tuple[str, str, str]:
    """Whose recommendations come from several earlier items; for whom the two runs agree on some; whose are most diverse."""
    users = [user["user"] for user in asked(url, f"/users?limit={_MANY}")["users"]]
    n_reasons, n_shared, n_genres = {}, {}, {}
    for user in users:
        answers = [
            asked(url, f"/recommend?run={Path(run).name}", {"user": user, "n": _ITEMS, "because": True})["items"]
            for run in runs
        ]
        n_reasons[user] = len({item["because"] for item in answers[0]})
        n_shared[user] = len({item["item"] for item in answers[0]} & {item["item"] for item in answers[1]})
        n_genres[user] = len({item["attributes"].get("genre") for item in answers[0]})
    both = min(users, key=lambda user: abs(n_shared[user] - _SHARED))
    return max(users, key=n_reasons.__getitem__), both, max(users, key=n_genres.__getitem__)


def picture(page: Page) -> Image.Image:
    page.settled()
    # Fonts, pictures and charts are laid out in the frame after this one.
    page.run_async("const done = arguments[0]; requestAnimationFrame(() => requestAnimationFrame(() => done()))")
    return Image.open(io.BytesIO(page.driver.get_screenshot_as_png())).convert("RGB")


def reduced(image: Image.Image, n_colours: int) -> Image.Image:
    """The commonest colours as they are, which are grounds and letters; the others spread over what is there, so that the few
    points of a group keep their hue."""
    pixels = np.asarray(image).astype(np.int32) @ np.array([1 << 16, 1 << 8, 1], np.int32)
    packed, places, counts = np.unique(pixels.ravel(), return_inverse=True, return_counts=True)
    colours = np.stack([packed >> 16, packed >> 8 & 255, packed & 255], axis=1)
    common = colours[np.argsort(-counts)[: n_colours // 2]]
    spread = image.quantize(n_colours - len(common), method=Image.Quantize.MAXCOVERAGE).getpalette() or []
    palette = np.concatenate([common, np.array(spread, np.int64).reshape(-1, 3)])[:n_colours]
    nearest = np.array([np.square(palette - colour).sum(1).argmin() for colour in colours], np.uint8)
    result = Image.fromarray(nearest[places].reshape(pixels.shape), "P")
    result.putpalette(palette.ravel().tolist())
    return result


def keep(name: str, image: Image.Image) -> None:
    """With as many colours as the limit of size allows."""
    for n_colours in _COLOURS:
        written = io.BytesIO()
        reduced(image, n_colours).save(written, "PNG", optimize=True)
        if written.tell() < _MOST_BYTES:
            break
    (ROOT / "docs" / "images" / name).write_bytes(written.getvalue())
    print(f"{name}: {written.tell():,} bytes, {n_colours} colours")


def shown(page: Page, theme: str, hash_: str, css: str = "h1", size: tuple[int, int] = DESKTOP) -> Page:
    page.size(*size, SCALE)
    page.prefer(theme)
    page.open(hash_)
    page.one(css)
    page.settled()
    return page


def take(page: Page, user: str, both: str, diverse: str) -> None:
    keep("explorer-user.png", picture(shown(page, "light", f"#/user/{user}?vary=category", ".card")))
    page.one(".card-title").click()
    page.one("#reasons .bars")
    keep("explorer-reasons.png", picture(page))
    shown(page, "dark", "#/new?user.age=20-29&user.region=Osaka", ".card")
    for number in range(2):
        before = page.texts(".picked li")
        page.all(".take")[number].click()
        page.wait(lambda before=before: page.texts(".picked li") != before)
        page.one(".mark.fresh, .mark.up, .mark.down")
        page.settled()
    keep("explorer-new.png", picture(page))
    shown(page, "light", f"#/user/{diverse}", ".card")
    item = str(page.one(".card").get_attribute("data-item"))
    shown(page, "light", f"#/map?user={diverse}&item={item}", ".near li")
    page.wait(lambda: {"history", "chosen"} <= set(page.texts(".map-chart .legendtext")))
    keep("explorer-map.png", picture(page))
    keep("explorer-run.png", picture(shown(page, "dark", "#/run", ".scatterlayer")))
    keep("explorer-compare.png", picture(shown(page, "light", f"#/compare?user={both}", ".agreement")))
    phones = [
        picture(shown(page, "light", f"#/user/{user}?vary=category", ".card", PHONE)),
        picture(shown(page, "dark", f"#/map?user={diverse}", ".map-chart .scatterlayer", PHONE)),
    ]
    shown(page, "light", f"#/user/{user}", ".card", PHONE).one(".card-title").click()
    page.one("#reasons .bars")
    phones.insert(1, picture(page))
    gap = 30
    side_by_side = Image.new("RGB", (sum(image.width + gap for image in phones) - gap, phones[0].height), "white")
    for number, image in enumerate(phones):
        side_by_side.paste(image, (number * (image.width + gap), 0))
    keep("explorer-phone.png", side_by_side)


def main() -> None:
    with tempfile.TemporaryDirectory() as temporary:
        runs = sys.argv[1:] or trained(Path(temporary))
        with served(*runs) as url, chromium(url) as page:
            users = chosen_users(url.rstrip("/"), runs)
            page.driver.get(f"{page.url}/static/icon.svg")
            take(page, *users)


if __name__ == "__main__":
    main()
