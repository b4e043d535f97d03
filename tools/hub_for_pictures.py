"""A hub with models of several teams, for pictures: `with served_hub(FOLDER, DEMO, RICH)`."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import urllib.request
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

import dlv

DLV = [sys.executable, "-m", "dlv"]
# Namespace/repository: visibility, description, and its models: (name, task, license, tags).
Models = Sequence[tuple[str, str, str, str]]
PLAN: dict[str, tuple[str, str, Models]] = {
    "acme/speech": ("public", "Keywords from short recordings.", [
        ("wakeword", "audio-classification", "apache-2.0", "[audio, edge]"),
        ("wakeword-tiny", "audio-classification", "apache-2.0", "[audio, edge, quantized]"),
        ("speaker", "speaker-identification", "mit", "[audio]"),
        ("denoise", "audio-to-audio", "mit", "[audio, streaming]"),
    ]),
    "acme/tables": ("public", "Forecasts of the warehouse.", [
        ("demand", "tabular-regression", "mit", "[forecast]"),
        ("returns", "tabular-classification", "mit", "[forecast, weekly]"),
        ("prices", "tabular-regression", "bsd-3-clause", "[forecast]"),
    ]),
    "ada/experiments": ("public", "Things that may not work.", [
        ("pruned", "image-classification", "cc-by-4.0", "[digits, sparse]"),
        ("wide", "image-classification", "cc-by-4.0", "[digits]"),
        ("distilled", "image-classification", "cc-by-4.0", "[digits, small]"),
        ("contrastive", "feature-extraction", "cc-by-4.0", "[digits, embeddings]"),
    ]),
    "lab/language": ("public", "Small models of small languages.", [
        ("bigram", "text-generation", "apache-2.0", "[text, baseline]"),
        ("charnet", "text-generation", "apache-2.0", "[text]"),
        ("tagger", "token-classification", "apache-2.0", "[text, german]"),
        ("sentiment", "text-classification", "mit", "[text, reviews]"),
        ("sentiment-small", "text-classification", "mit", "[text, reviews, edge]"),
        ("ranker", "text-ranking", "mit", "[text, search]"),
    ]),
    "lab/science": ("public", "Surrogates of slow simulations.", [
        ("heat", "physics", "bsd-3-clause", "[pde]"),
        ("flow", "physics", "bsd-3-clause", "[pde, turbulence]"),
        ("molecule", "graph-regression", "mit", "[chemistry]"),
        ("crystal", "graph-classification", "mit", "[chemistry, materials]"),
    ]),
    "acme/fraud": ("private", "Not for everybody.", [
        ("scores", "tabular-classification", "proprietary", "[risk]"),
    ]),
}  # fmt: skip


@dataclass(frozen=True)
class Served:
    """A running hub: its address, and the sessions of users by name."""

    url: str
    sessions: dict[str, str]


def hub(data: Path, *words: str) -> str:
    """Run a command of the shell, and return what it prints."""
    done = subprocess.run(
        [*DLV, "hub", *words, "--data", str(data)], check=True, capture_output=True, text=True
    )
    return done.stdout.strip()


def publish(folder: Path, url: str, label: str, token: str) -> None:
    environ = dict(os.environ, DLV_TOKEN=token, DLV_TOKEN_URL=url)
    with dlv.open(folder) as repo:
        names = sorted({version.name for version in repo})
    add = ["remote", "add", "hub", f"{url}/{label}"]
    for words in (add, ["publish", *names, "--remote", "hub"]):
        subprocess.run([*DLV, *words, "-q"], check=True, cwd=folder, env=environ,
                       stdout=subprocess.DEVNULL)  # fmt: skip


def ask(url: str, method: str, path: str, token: str, body: object) -> None:
    request = urllib.request.Request(f"{url}{path}", json.dumps(body).encode(), method=method)
    request.add_header("Authorization", f"Bearer {token}")
    with urllib.request.urlopen(request, timeout=30):
        pass


def small(folder: Path, models: Models, seed: int) -> None:
    """A repository of small models with some versions each."""
    lot = np.random.default_rng(seed)
    folder.mkdir()
    with contextlib.chdir(folder), dlv.open(folder, create=True) as repo:
        for name, task, licence, tags in models:
            Path("CARD.md").write_text(
                f"---\ntask: {task}\nlicense: {licence}\ntags: {tags}\n---\n# {name}\n\n"
                f"Trained for {task.replace('-', ' ')}.\n"
            )
            width = int(lot.integers(8, 200))
            for number in range(int(lot.integers(1, 5))):
                repo.add("CARD.md")
                floor = 0.1 + 0.3 * lot.random()
                loss = [(step, floor + 2 * 0.9**step) for step in range(0, 60, 3)]
                repo.commit(
                    ["first try", "longer", "smaller steps", "more data"][number],
                    name=name,
                    weights={
                        "fc1.weight": lot.normal(size=(width, 64)).astype(np.float32),
                        "fc2.weight": lot.normal(size=(10, width)).astype(np.float32),
                    },
                    parameters={"lr": 0.1 / (number + 1), "width": width},
                    metrics={"loss": loss, "accuracy": [(s, 1 - v / 4) for s, v in loss]},
                )


@contextlib.contextmanager
def served_hub(place: Path, demo: Path, rich: Path) -> Iterator[Served]:
    """Serve a hub in a folder; `demo` and `rich` are repositories that are published on it."""
    data = place / "hub"
    data.mkdir(parents=True)
    for words in (["ada", "--operator"], ["bob"]):
        hub(data, "user", "add", *words)
    for namespace in ("acme", "lab"):
        hub(data, "member", "set", namespace, "ada", "admin")
    token = hub(data, "token", "create", "ada", "-q")
    server = subprocess.Popen(
        [*DLV, "hub", "serve", "--data", str(data), "--port", "0"],
        stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
    )  # fmt: skip
    assert server.stdout is not None
    try:
        url = server.stdout.readline().strip()
        for seed, (label, (visibility, description, models)) in enumerate(PLAN.items()):
            about = {"visibility": visibility, "description": description}
            ask(url, "PUT", f"/v1/{label}", token, about)
            folder = place / label.replace("/", "-")
            small(folder, models, seed)
            publish(folder, url, label, token)
        for label, folder, description in (
            ("acme/vision", demo, "The network of the first steps."),
            ("acme/digits", rich, "Handwritten digits of 8 x 8 pixels, in sixty versions."),
        ):
            about = {"visibility": "public", "description": description}
            ask(url, "PUT", f"/v1/{label}", token, about)
            publish(folder, url, label, token)
        for alias, number in (("production", 2), ("staging", 3)):
            address = f"/v1/acme/digits/aliases/conv/{alias}"
            ask(url, "PUT", address, token, {"number": number})
        hub(data, "member", "set", "acme/digits", "bob", "writer")
        yield Served(url, {name: session(url, data, name) for name in ("ada", "bob")})
    finally:
        server.terminate()
        server.wait(60)


def session(url: str, data: Path, name: str) -> str:
    """Log in as a person does, with a token, and return what the cookie has."""
    token = hub(data, "token", "create", name, "-q")
    request = urllib.request.Request(f"{url}/login", f"token={token}".encode(), method="POST")
    opener = urllib.request.build_opener(_Stay)
    try:
        opener.open(request, timeout=30)
    except urllib.error.HTTPError as answer:
        return str(answer.headers["Set-Cookie"]).partition("dlv_session=")[2].partition(";")[0]
    raise SystemExit("the login failed")


class _Stay(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, *_: object) -> None:
        return None
