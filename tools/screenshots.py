"""Take pictures of every page of `dlv ui`, of a hub, and of every report: light, dark, narrow.

    python tools/screenshots.py [FOLDER] [--rich FOLDER] [--only WORD] [--docs]

Uses the repository of `dlv demo` and a larger one from tools/rich_repository.py, which is created
unless --rich names it. Needs Chromium: `apt-get install chromium`, or CHROMIUM names the program.
`--docs` renews the pictures of the README and of the documentation.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

from hub_for_pictures import Served, served_hub
from PIL import Image
from playwright.sync_api import Browser, sync_playwright

ROOT = Path(__file__).resolve().parents[1]
DLV = [sys.executable, "-m", "dlv"]
LOOKS = {
    "light": {"viewport": {"width": 1280, "height": 900}, "color_scheme": "light"},
    "dark": {"viewport": {"width": 1280, "height": 900}, "color_scheme": "dark"},
    "narrow": {"viewport": {"width": 390, "height": 844}, "color_scheme": "light"},
}
DERIVED = 'construct d from m where m.name = "conv" mutate m["0"].out = 16'
DEMO = {
    "models": "/", "version": "/v/lenet@1", "compare": "/compare?v=lenet@1&v=lenet@3",
    "query": "/query?q=select+m", "sweeps": "/sweeps",
    "evaluate": "/evaluate?ref=lenet@1&data=test.npz",
    "storage": "/storage", "network": "/network/lenet@1", "live": "/live",
    "file": "/file/lenet@1?path=train.py", "missing": "/v/nothing",
}  # fmt: skip
RICH = {
    "models": "/", "chosen": "/?where=accuracy+%3E+0.9&sort=loss&columns=accuracy,loss,loss.min,lr",
    "version": "/v/conv@12", "compare": "/compare?v=mlp@1&v=mlp@3&v=mlp@14&v=mlp-wide@1",
    "query": f"/query?{urlencode({'q': DERIVED})}",
    "mistake": "/query?q=select+m+where+m%5B%22accuracy%22%5D+%3E", "sweeps": "/sweeps",
    "evaluate": "/evaluate?ref=conv@12&data=mlp@15:test.npz&progressive=1", "storage": "/storage",
    "network": "/network/residual@4", "networks": "/compare?v=conv@1&v=conv-big@1",
}  # fmt: skip
DIGITS, NEXT = "/acme/digits", 'm["conv*"].next has RELU'
# Of the hub: name: (address, the user who is logged in).
HUB = {
    "home": ("/", ""), "search": ("/search?q=task%3Atext*+accuracy%3E0.5&sort=accuracy", ""),
    "where": (f"/search?{urlencode({'where': NEXT})}", ""),
    "mistake": (f"/search?{urlencode({'q': 'digits', 'where': NEXT[:6]})}", ""),
    "nothing": ("/search?q=nothing-like-this", ""), "namespace": ("/acme", "ada"),
    "repository": (DIGITS, "ada"), "versions": (f"{DIGITS}/versions", ""),
    "version": (f"{DIGITS}/v/conv@3", ""), "network": (f"{DIGITS}/network/residual@3", ""),
    "compare": (f"{DIGITS}/compare?v=mlp@1&v=mlp@2&v=mlp@3&v=mlp-wide@1", ""),
    "query": (f"{DIGITS}/query?q=select+m%2C+m.lr+where+m%5B%22accuracy%22%5D+%3E+0.9", ""),
    "file": ("/acme/vision/file/lenet@1?path=train.py", ""), "login": ("/login", ""),
    "device": ("/login/device", "bob"), "tokens": ("/tokens", "ada"),
    "settings": (f"{DIGITS}/-/settings", "ada"), "namespace-settings": ("/lab/-/settings", "ada"),
    "missing": ("/acme/nothing", ""), "empty": ("/bob", "bob"),
}  # fmt: skip
REPORTS = {
    "desc": ["desc", "conv@12"], "diff": ["diff", "mlp@1", "mlp@14", "mlp-wide@1"],
    "query": ["query", "select m, m.lr, m[\"loss\"].min as best order by best limit 12"],
    "plots": ["plots", "mlp@1", "mlp@5", "mlp@14"], "trials": ["trials", "latest"],
    "eval": ["eval", "conv@12", "test.npz", "--progressive", "--confusion", "--no-save"],
    "archive": ["archive", "--dry-run"], "stats": ["stats"],
}  # fmt: skip


def chromium() -> str:
    """The browser of the distribution."""
    for name in (os.environ.get("CHROMIUM"), "chromium", "chromium-browser", "google-chrome"):
        if name and (path := shutil.which(name)):
            return path
    raise SystemExit("no Chromium found: apt-get install chromium, or set CHROMIUM")


@contextlib.contextmanager
def browser() -> Iterator[Browser]:
    with sync_playwright() as playwright:
        found = playwright.chromium.launch(executable_path=chromium(), args=["--no-sandbox"])
        yield found
        found.close()


@contextlib.contextmanager
def served(repository: Path, *words: str) -> Iterator[str]:
    """The address of `dlv ui`, with its token."""
    command = [*DLV, "ui", "--port", "0", "--no-open", *words]
    process = subprocess.Popen(command, cwd=repository, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    try:
        yield process.stdout.readline().strip()
    finally:
        process.terminate()
        process.wait(20)


def shoot(found: Browser, pages: dict[str, str], base: str, folder: Path, only: str) -> None:
    for look, settings in LOOKS.items():
        context = found.new_context(**settings)  # type: ignore[arg-type]
        page = context.new_page()
        page.on("console", lambda message: print(f"  {message.type}: {message.text}"))
        enter(page, base)
        for name, address in pages.items():
            if only not in name:
                continue
            page.goto(_join(base, address))
            settle(page)
            page.screenshot(path=folder / f"{name}-{look}.png", full_page=True)
        context.close()


def enter(page: Any, base: str) -> None:
    """Hand over the token, and wait for the first page."""
    if base.startswith("http"):
        page.goto(base)
        page.locator("nav").first.wait_for()


def settle(page: Any) -> None:
    """Until charts are drawn and parts have come."""
    page.wait_for_load_state("load")
    page.locator("[aria-busy]").first.wait_for(state="detached", timeout=60_000)
    page.wait_for_timeout(400)


def shoot_hub(found: Browser, hub: Served, folder: Path, only: str) -> None:
    for look, settings in LOOKS.items():
        for user in ("", *hub.sessions):
            context = found.new_context(**settings)  # type: ignore[arg-type]
            if user:
                cookie = {"name": "dlv_session", "value": hub.sessions[user], "url": hub.url}
                context.add_cookies([cookie])  # type: ignore[list-item]
            page = context.new_page()
            for name, (address, whose) in HUB.items():
                if whose == user and only in name:
                    page.goto(hub.url + address)
                    settle(page)
                    page.screenshot(path=folder / f"{name}-{look}.png", full_page=True)
            context.close()


def _join(base: str, address: str) -> str:
    return address if "://" in address else base.split("/?")[0] + address


def sweep(repository: Path) -> str:
    out = subprocess.run([*DLV, "trials", "-q"], cwd=repository, capture_output=True, text=True)
    return out.stdout.split()[0] if out.stdout.split() else ""


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", nargs="?", default="screenshots", type=Path)
    parser.add_argument("--rich", type=Path)
    parser.add_argument("--only", default="")
    parser.add_argument("--docs", action="store_true")
    told = parser.parse_args()
    with tempfile.TemporaryDirectory() as place, browser() as found:
        demo = Path(place, "demo")
        subprocess.run([*DLV, "demo", str(demo), "-q"], check=True, stdout=subprocess.DEVNULL)
        rich = told.rich or Path(place, "rich")
        if told.rich is None:
            make = [sys.executable, str(ROOT / "tools" / "rich_repository.py"), str(rich)]
            subprocess.run(make, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        rich_pages = RICH | {"sweep": f"/sweeps/{sweep(rich)}"}
        with served_hub(Path(place, "served"), demo, rich) as hub:
            if told.docs:
                _hub_docs(found, hub)
            else:
                folder = told.folder / "hub"
                folder.mkdir(parents=True, exist_ok=True)
                shoot_hub(found, hub, folder, told.only)
        if told.docs:
            _docs(found, rich, rich_pages)
            return
        for repository, name, pages in ((demo, "demo", DEMO), (rich, "rich", rich_pages)):
            folder = told.folder / name
            folder.mkdir(parents=True, exist_ok=True)
            with served(repository) as base:
                shoot(found, pages, base, folder, told.only)
        folder = told.folder / "reports"
        folder.mkdir(parents=True, exist_ok=True)
        made = {}
        for name, words in REPORTS.items():
            path = (folder / f"{name}.html").resolve()
            subprocess.run([*DLV, *words, "-o", str(path)], cwd=rich, check=True,
                           stdout=subprocess.DEVNULL)  # fmt: skip
            made[name] = path.as_uri()
        shoot(found, made, "about:blank", folder, told.only)
        print(f"{len(list(told.folder.rglob('*.png')))} pictures in {told.folder}")


# Page, width, height, name of the picture, and the heading that it begins with, if not the first.
_PICTURES = (
    ("models", 1180, 640, "ui-models", ""),
    ("movement", 1180, 640, "ui-compare", "Where weights moved"),
    ("sweep", 1180, 820, "ui-sweep", ""),
    ("network", 900, 760, "ui-network", ""),
)
MOVEMENT = "/compare?v=mlp@2&v=mlp@4&v=mlp@8&v=mlp@14"


def _docs(found: Browser, repository: Path, pages: dict[str, str]) -> None:
    with served(repository) as base:
        for name, width, height, file, heading in _PICTURES:
            context = found.new_context(viewport={"width": width, "height": height})
            page = context.new_page()
            enter(page, base)
            page.goto(_join(base, (pages | {"movement": MOVEMENT})[name]))
            settle(page)
            if heading:
                page.get_by_role("heading", name=heading).evaluate("part => part.scrollIntoView()")
            page.screenshot(path=ROOT / "docs" / "images" / f"{file}.png")
            context.close()
            _shrink(ROOT / "docs" / "images" / f"{file}.png")


def _hub_docs(found: Browser, hub: Served) -> None:
    for name, height in (("home", 760), ("version", 900)):
        page = found.new_page(viewport={"width": 1180, "height": height})
        page.goto(hub.url + HUB[name][0])
        settle(page)
        path = ROOT / "docs" / "images" / f"hub-{name}.png"
        page.screenshot(path=path)
        page.close()
        _shrink(path)


def _shrink(path: Path) -> None:
    """A page has few colors: a fourth of the bytes shows the same."""
    picture = Image.open(path).convert("RGB")
    picture.quantize(128, dither=Image.Dither.NONE).save(path, optimize=True)


if __name__ == "__main__":
    main()
