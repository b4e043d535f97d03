"""Figure 6(b): is a delta worth it? Retrained, fine-tuned and neighbouring checkpoints."""

from __future__ import annotations

from typing import Any

from benchmarks.storage import ratios
from benchmarks.storage.corpora import Corpus
from benchmarks.storage.peers import (
    ZLIB_PLANES,
    add,
    of_difference,
    subtract,
    unzigzag,
    xor,
    zigzag,
)
from benchmarks.storage.ratios import Figure

# The paper subtracts floats, which loses bits; here integers in the order of the floats are, and
# the sign is folded into the lowest bit, or else it would fill all high bytes of small differences.
SUB = of_difference(
    "Delta-SUB, zlib",
    lambda target, base, like: zigzag(subtract(target, base, like)),
    lambda words, base, like: add(unzigzag(words), base, like),
    ZLIB_PLANES,
)
XOR = of_difference("Delta-XOR, zlib", xor, xor, ZLIB_PLANES)
WAYS = ("Materialize, zlib", "Delta-SUB, zlib", "Delta-XOR, zlib", "dlv commit", "dlv archive")
SCENARIOS = {
    "similar\n(retrained)": ["LeNet retrained, other seeds"],
    "fine-tuned\n(labels, parity)": ["LeNet fine-tune, 5 labels", "LeNet fine-tune, parity"],
    "snapshots\n(Adam)": ["LeNet Adam chain, mean"],
    "snapshots\n(SGD)": ["LeNet SGD chain, mean"],
}


def measure(corpus: Corpus) -> dict[str, Any]:
    rows = {row.name: row for row in ratios.lenet_rows(corpus)}
    found: dict[str, dict[str, float]] = {}
    for scenario, names in SCENARIOS.items():
        figures = {way: Figure() for way in WAYS}
        for get_target, get_base in (pair for name in names for pair in rows[name].pairs):
            target = get_target()
            base = None if get_base is None else get_base()
            ratios.by_peer(ZLIB_PLANES, target, None, figures["Materialize, zlib"])
            ratios.by_peer(SUB, target, base, figures["Delta-SUB, zlib"])
            ratios.by_peer(XOR, target, base, figures["Delta-XOR, zlib"])
            ratios.by_dlv("fast", target, None, figures["dlv commit"])
            ratios.by_dlv("small", target, base, figures["dlv archive"])
        found[scenario.replace("\n", " ")] = {way: figures[way].ratio for way in WAYS}
    return {"figure": "6b", "ratios": found}
