"""Real sizes: what `dlv archive` takes as matrices, versions and files grow, peers beside it.

    python -m benchmarks.sizes [--only sides,pair,chains,dtypes,versions,memory]

Everything is measured through the commands; peers run in the same process order, on the same
bytes, and give them back. Prints tables and, as its last line, a JSON document.

sides      seconds of processor time per gigabyte for matrices of side 256 to 16,384
pair       two versions of a 512 MB float32 model, the second moved by 2e-5: every effort
chains     checkpoints of trained models (`benchmarks.storage` trains them): whole stores and speeds
dtypes     bfloat16, float16, float8, int8, float64 and Adam's moments between checkpoints
versions   many versions: what each further one costs to commit, list and archive
memory     a 10 GB model under a hard limit of two tensors and 300 MB
"""

from __future__ import annotations

import argparse
import json
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
from safetensors.numpy import save_file

from benchmarks.sizes import commands
from benchmarks.sizes.data import (
    apart,
    moved,
    stacked,
    weights,
    write_gguf,
    write_large,
    write_pair,
)
from benchmarks.storage import models
from benchmarks.storage.corpora import Corpus, default_cache
from benchmarks.storage.models import Model

EFFORTS = ("fast", "normal", "high")
SIDES = (256, 512, 1024, 2048, 4096, 8192, 16_384)
Figures = dict[str, Any]
# Names of peers in `benchmarks.storage.peers`.
PCODEC, ZIPNN, OPENZL, FOLDED = (
    "difference + pcodec",
    "XOR + ZipNN",
    "difference + openzl",
    "difference, zigzag, zstd-3 planes (idea of FM-Delta)",
)


def say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def sides(folder: Path, given: Any) -> Figures:
    """Pairs of one side each, as many matrices as fill `--gigabytes`, at least one."""
    found: Figures = {}
    for side in SIDES:
        if 8 * side * side > given.gigabytes * 2e9 and side > 8192 and not given.large:
            continue
        count = max(1, round(given.gigabytes * 1e9 / (8 * side * side)))
        files = [folder / f"{side}-{part}.safetensors" for part in "ab"]
        apart(write_pair, files, (side, side), count)
        store = folder / f"sides-{side}"
        commands.commit(store, files)
        before = commands.packs(store)
        raw = sum(file.stat().st_size for file in files)
        ran = commands.run(store, "archive")
        found[str(side)] = {
            "matrices": count,
            "seconds a GB": round(ran.processor / raw * 1e9, 2),
            "wall": round(ran.wall, 2),
            "ratio": round(commands.packs(store) / raw, 4),
            "before": round(before / raw, 4),
            "peak MB": round(ran.peak),
        }
        say(f"side {side}: {found[str(side)]}")
        commands.same(store, files)
        shutil.rmtree(store)
        for file in files:
            file.unlink()
    taken = [row["seconds a GB"] for row in found.values()]
    found["spread"] = round(max(taken) / min(taken), 3)
    return found


def pair(folder: Path, _: Any) -> Figures:
    """100 tensors of 1024 x 1250."""
    files = [folder / "a.safetensors", folder / "b.safetensors"]
    apart(write_pair, files, (1024, 1250), 100)
    raw = sum(file.stat().st_size for file in files)
    found: Figures = {}
    store = folder / "pair"
    commands.commit(store, files)
    for effort in EFFORTS:
        copy = folder / f"pair-{effort}"
        shutil.copytree(store, copy)
        told = json.loads(
            commands.run(copy, "--json", "archive", "--effort", effort, "--dry-run").output
        )
        ran = commands.run(copy, "archive", "--effort", effort)
        size = commands.packs(copy)
        saved = commands.packs(store) - size
        planned = told["before"] - told["after"]
        found[effort] = {
            "wall": round(ran.wall, 1),
            "MB/s a core": round(raw / ran.processor / 1e6, 1),
            "ratio": round(size / raw, 4),
            "peak MB": round(ran.peak),
            "time told / taken": round(told["left_seconds"] / ran.wall, 2),
            "saving told / made": round(planned / saved, 3),
        }
        say(f"{effort}: {found[effort]}")
        commands.same(copy, files)
        if effort == "normal":
            found["checkout"] = checkout(copy, files)
        shutil.rmtree(copy)
    base, target = (models.load(file) for file in files)
    found["peers"] = peers(target, base, (PCODEC, OPENZL, FOLDED))
    return found


def checkout(store: Path, files: Sequence[Path]) -> Figures:
    """Beside a copy of the file; of the version with the longest chains."""
    copies = []
    for _ in range(3):
        begun = time.perf_counter()
        shutil.copy(files[0], store / "copy")
        copies.append(time.perf_counter() - begun)
    (store / "copy").unlink()
    taken = []
    for _ in range(3):
        taken.append(commands.run(store, "checkout", "model@1", "--to", "back").wall)
        shutil.rmtree(store / "back")
    copy, wall = statistics.median(copies), statistics.median(taken)
    return {"wall": round(wall, 2), "copy": round(copy, 2), "share": round(copy / wall, 3)}


def peers(target: Model, base: Model, names: Sequence[str]) -> Figures:
    """Payload over raw bytes, and megabytes a second of one core, encoded and given back."""
    from benchmarks.storage.peers import AGAINST

    found: Figures = {}
    for peer in AGAINST:
        if peer.name not in names:
            continue
        spent = [0.0, 0.0]
        raw = size = 0
        for name, held in target.items():
            begun = time.process_time()
            blob = peer.encode(held, base[name])
            spent[0] += time.process_time() - begun
            begun = time.process_time()
            back = peer.decode(blob, held, base[name])
            spent[1] += time.process_time() - begun
            if back != held.raw:
                raise SystemExit(f"{peer.name} gave back other bytes of {name}")
            raw += len(held.raw)
            size += sum(map(len, blob))
        found[peer.name] = {
            "ratio": round(size / raw, 4),
            "encode MB/s": round(raw / spent[0] / 1e6),
            "decode MB/s": round(raw / spent[1] / 1e6),
        }
        say(f"{peer.name}: {found[peer.name]}")
    return found


def chains(folder: Path, given: Any) -> Figures:
    """Trained checkpoints, a version each; peers: the first alone, each on the one before."""
    from benchmarks.storage import lenet, minilm

    lines: dict[str, list[Path]] = {}
    for seed in given.seeds:
        corpus = Corpus("lenet", seed, lenet.lines, given.cache, say)
        for line in ("adam", "sgd"):
            lines[f"LeNet {line}, seed {seed}"] = corpus.files(line)
    recipe = minilm.Recipe(given.cache, None)
    corpus = Corpus("minilm", given.seeds[0], recipe, given.cache, say)
    lines["MiniLM and a fine-tune"] = corpus.files("base") + corpus.files("decay")[-1:]
    lines["MiniLM and 4 checkpoints"] = corpus.files("base") + corpus.files("decay")
    found: Figures = {}
    for number, (name, files) in enumerate(lines.items()):
        raw = sum(file.stat().st_size for file in files)
        row: Figures = {}
        for effort in EFFORTS[:2]:
            store = folder / f"chain{number}-{effort}"
            commands.commit(store, files)
            ran = commands.run(store, "archive", "--effort", effort, "--alpha", "inf")
            commands.same(store, files)
            row[effort] = {
                "ratio": round(commands.packs(store) / raw, 4),
                "MB/s a core": round(raw / ran.processor / 1e6, 1),
            }
            shutil.rmtree(store)
        row["pcodec"] = round(chain_of_peer(files, "pcodec", PCODEC), 4)
        row["zipnn"] = round(chain_of_peer(files, "ZipNN", ZIPNN), 4)
        row["openzl"] = round(chain_of_peer(files, "openzl", OPENZL), 4)
        found[name] = row
        say(f"{name}: {row}")
    for line in ("adam", "sgd"):
        ratios = [found[f"LeNet {line}, seed {seed}"]["normal"]["ratio"] for seed in given.seeds]
        found[f"LeNet {line}, all seeds"] = {
            "mean": round(statistics.mean(ratios), 4),
            "least": min(ratios),
            "most": max(ratios),
        }
    return found


def chain_of_peer(files: Sequence[Path], alone: str, against: str) -> float:
    from benchmarks.storage.peers import AGAINST, ALONE

    first = next(peer for peer in ALONE if peer.name == alone)
    later = next(peer for peer in AGAINST if peer.name == against)
    raw = size = 0
    base: Model | None = None
    for file in files:
        model = models.load(file)
        for name, held in model.items():
            raw += len(held.raw)
            if base is not None and base[name].raw == held.raw:
                continue
            peer = first if base is None else later
            size += sum(map(len, peer.encode(held, None if base is None else base[name])))
        base = model
    return size / raw


def dtypes(folder: Path, _: Any) -> Figures:
    """A matrix of 2048 x 4096 and what a training step makes of it, in every kind of number."""
    from gguf import GGMLQuantizationType
    from gguf.quants import quantize

    random = np.random.default_rng(1)
    base = weights((2048, 4096), 1).astype(np.float64)
    after = base + random.normal(0, 2e-5, base.shape)
    moments = random.normal(0, 1e-4, base.shape).astype(np.float32)
    squares = np.square(moments, dtype=np.float64) * np.exp(random.normal(0, 1, base.shape))
    squares = squares.astype(np.float32)
    near = 0.9**25 * moments + random.normal(0, 3e-5, base.shape)
    scale = np.abs(base).max(1, keepdims=True) / 127
    pairs: dict[str, tuple[Any, Any]] = {
        kind.__name__: (base.astype(kind), after.astype(kind))
        for kind in (np.float64, np.float32, np.float16, ml_dtypes.bfloat16)
    }
    for kind in (ml_dtypes.float8_e4m3fn, ml_dtypes.float8_e5m2):
        pairs[kind.__name__] = (base * 16).astype(kind), (after * 16).astype(kind)
    pairs["int8, absmax by row"] = tuple(np.rint(w / scale).astype(np.int8) for w in (base, after))
    pairs["int4 in bytes, absmax by row"] = tuple(
        _nibbles(np.clip(np.rint(w / scale / 18), -8, 7)) for w in (base, after)
    )
    pairs["Adam's first moment"] = moments, near.astype(np.float32)
    pairs["Adam's second moment"] = squares, (squares * np.float32(0.975)).astype(np.float32)
    for level in (GGMLQuantizationType.Q8_0, GGMLQuantizationType.Q4_0):
        blocks = (quantize(w.astype(np.float32), level) for w in (base, after))
        pairs[f"GGUF {level.name}"] = tuple(blocks)
    pairs["GGUF Q8_0, then Q4_0"] = pairs["GGUF Q8_0"][0], pairs["GGUF Q4_0"][0]
    found: Figures = {}
    for number, (name, arrays) in enumerate(pairs.items()):
        if name.startswith("GGUF"):
            files = [folder / f"dtype{number}-{part}.gguf" for part in "ab"]
            levels = [level for level in ("Q8_0", "Q4_0") if level in name]
            for file, array, level in zip(files, arrays, (levels * 2)[:2], strict=True):
                write_gguf(file, array, GGMLQuantizationType[level])
        else:
            files = [folder / f"dtype{number}-{part}.safetensors" for part in "ab"]
            for file, array in zip(files, arrays, strict=True):
                save_file({"w": array}, file)
        found[name] = _pair_of(folder / f"dtype{number}", files, arrays)
        say(f"{name}: {found[name]}")
    return found


def _pair_of(store: Path, files: Sequence[Path], arrays: Sequence[Any]) -> Figures:
    """The second file given the first, and the first alone; peers are given the numbers."""
    commands.commit(store, files[:1])
    alone = commands.packs(store)
    shutil.rmtree(store)
    commands.commit(store, files)
    raw = arrays[1].nbytes
    row = {"alone": round(alone / arrays[0].nbytes, 4)}
    for effort in EFFORTS[:2]:
        copy = store.with_name(f"{store.name}-{effort}")
        shutil.copytree(store, copy)
        commands.run(copy, "archive", "--effort", effort, "--alpha", "inf")
        commands.same(copy, files)
        row[effort] = round((commands.packs(copy) - alone) / raw, 4)
        shutil.rmtree(copy)
    shutil.rmtree(store)
    from benchmarks.storage.peers import ALONE

    base, target = (models.matrix(array) for array in arrays)
    if len(base.raw) == len(target.raw):
        figures = peers({"w": target}, {"w": base}, (PCODEC, ZIPNN, OPENZL, FOLDED))
        row |= {peer: figure["ratio"] for peer, figure in figures.items()}
    for peer in ALONE:
        row[f"{peer.name} alone"] = round(sum(map(len, peer.encode(target, None))) / raw, 4)
    return row


def _nibbles(values: Any) -> Any:
    halves = values.astype(np.int8).view(np.uint8) & 15
    return halves[:, ::2] | (halves[:, 1::2] << 4)


CHECK = "fsck --quick"


def versions(folder: Path, given: Any) -> Figures:
    """A model that moves a little from version to version: what the next one costs."""
    found: Figures = {}
    for name, count, shape, tensors in (
        ("5 MB", given.versions, (250, 250), 20),
        ("500 MB", given.large_versions, (1250, 1000), 100),
    ):
        if not count:
            continue
        store = folder / f"versions-{tensors}"
        store.mkdir()
        commands.run(store, "init")
        held = {f"w{n}": weights(shape, n) for n in range(tensors)}
        rows = []
        marks = sorted({round(count * part) for part in (0.1, 0.25, 0.5, 0.75, 1)} - {0})
        taken: list[float] = []
        for number in range(1, count + 1):
            save_file(held, store / commands.MODEL)
            commands.run(store, "add", commands.MODEL)
            taken.append(
                commands.run(store, "commit", "-m", str(number), "--name", "model").processor
            )
            held = {k: moved(v, 1e-5, number) for k, v in held.items()}
            if number in marks:
                row: Figures = {"versions": number, "commit": statistics.median(taken[-5:])}
                for command in ("list", "log", "status", "archive", "archive ", "gc", CHECK):
                    row[command] = commands.run(store, *command.split()).processor
                rows.append({k: round(v, 3) for k, v in row.items()})
                say(f"{name}: {rows[-1]}")
        found[name] = rows
        found[f"{name}, ratio"] = round(
            commands.packs(store) / (count * sum(v.nbytes for v in held.values())), 4
        )
        shutil.rmtree(store)
    return found


def memory(folder: Path, given: Any) -> Figures:
    """Peak memory under a limit on the address space, with tensors of 256 MB, mostly zeros."""
    shape, count = (8192, 8192), given.tensors
    size = 4 * shape[0] * shape[1]
    limit = 2 * size + (300 << 20)
    found: Figures = {"tensor MB": size >> 20, "model GB": round(count * size / 1e9, 1)}
    store = folder / "memory"
    store.mkdir()
    commands.run(store, "init")
    (store / "network.json").write_text(json.dumps(stacked(count, shape[0])))
    np.savez(store / "x.npz", x=np.ones((3, shape[1]), np.float32))
    versions = [f"add {commands.MODEL} network.json", "commit -m new --name model"]
    for number, lines in ((1, versions), (2, versions), (None, LARGE)):
        if number:
            apart(write_large, store / commands.MODEL, shape, count, number, shape[0] // 16)
        for line in lines:
            # `eval` keeps what has room for its next batch, so it gets less.
            reserved = ADDRESSES if not line.startswith("eval") else ADDRESSES // 10
            ran = commands.run(store, "-j", "2", *line.split(), limit=limit + reserved)
            found[f"{line} {number or ''}"] = f"{ran.peak:.0f} MB, {ran.wall:.0f} s"
            say(f"{line}: {ran.peak:.0f} MB, {ran.wall:.0f} s")
    return found


LARGE = (
    "archive",
    "diff model@1 model@2",
    "checkout model@1 --to back",
    "eval model@1 x.npz --precision float32",
    "fsck",
)
# What Python, numpy and threads' stacks reserve and never touch.
ADDRESSES = 1500 << 20


PARTS: dict[str, Callable[[Path, Any], Figures]] = {
    "sides": sides,
    "pair": pair,
    "chains": chains,
    "dtypes": dtypes,
    "versions": versions,
    "memory": memory,
}


def show(name: str, figures: Figures) -> None:
    print(f"\n{name}")
    for key, row in figures.items():
        for one in row if isinstance(row, list) else [row]:
            text = "  ".join(f"{k} {v}" for k, v in one.items()) if isinstance(one, dict) else one
            print(f"  {key:<32}{text}")


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="benchmarks.sizes", description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--only", default="sides,pair,chains,dtypes,versions")
    parser.add_argument("--gigabytes", type=float, default=0.5, help="of each side")
    parser.add_argument("--large", action="store_true", help="a side of 16,384, too: 2 GB")
    parser.add_argument("--seeds", type=lambda text: [*map(int, text.split(","))], default=[7])
    parser.add_argument("--cache", type=Path, default=default_cache())
    parser.add_argument("--versions", type=int, default=100, help="of a model of 5 MB")
    parser.add_argument("--large-versions", type=int, default=0, help="of a model of 500 MB")
    parser.add_argument("--tensors", type=int, default=40, help="of 256 MB, for `memory`")
    parser.add_argument("--folder", type=Path, help="where there is room")
    given = parser.parse_args()
    document: Figures = {"benchmark": "sizes"}
    for name in given.only.split(","):
        with tempfile.TemporaryDirectory(dir=given.folder) as folder:
            document[name] = PARTS[name](Path(folder), given)
        show(name, document[name])
    print(json.dumps(document))


if __name__ == "__main__":
    main()
