"""The figures as SVG and PNG."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import matplotlib as mpl
from matplotlib.figure import Figure

mpl.use("Agg")

# Distinct also to those who see no red and green apart (Okabe and Ito).
COLOURS = ["#0072B2", "#D55E00", "#009E73", "#CC79A7", "#56B4E9", "#E69F00", "#000000"]
MARKERS = "osD^vPX"
STYLE: dict[str, Any] = {
    "font.size": 9,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "grid.color": "#dddddd",
    "grid.linewidth": 0.6,
    "axes.axisbelow": True,
    "legend.frameon": False,
    "svg.hashsalt": "dlv",  # the same data give the same file
}


def canvas() -> tuple[Figure, Any]:
    figure = Figure(figsize=(5.6, 3.8), layout="constrained")
    return figure, figure.add_subplot()


def save(figure: Figure, stem: Path) -> None:
    figure.savefig(stem.with_suffix(".svg"), metadata={"Date": None})
    figure.savefig(stem.with_suffix(".png"), dpi=160)


def schemes(data: dict[str, Any], stem: Path) -> None:
    """6(a)"""
    with mpl.rc_context(STYLE):
        figure, axes = canvas()
        axes.set_xscale("log")
        axes.axhline(0, color="#888888", linewidth=0.8)
        for number, (name, points) in enumerate(data["series"].items()):
            x = [point["factor"] for point in points]
            y = [100 * point["drop"] for point in points]
            colour, marker = COLOURS[number % 7], MARKERS[number % 7]
            axes.plot(x, y, marker=marker, markersize=4.5, linewidth=1.2, color=colour, label=name)
        # A drop to what guessing gives says no more than a drop by a few points.
        axes.set_yscale("symlog", linthresh=1)
        axes.set_yticks([0, 0.5, 1, 3, 10, 30, 90])
        axes.yaxis.set_major_formatter("{x:g}")
        ticks = [1, 2, 3, 5, 10, 20, 50]
        axes.set_xticks(ticks, [f"{tick}x" for tick in ticks])
        axes.minorticks_off()
        axes.set_xlabel("compression (float32 / stored, with footers)")
        axes.set_ylabel("drop of accuracy (points)")
        axes.set_title("6(a) Lossy schemes, mean of four LeNets")
        axes.legend(loc="upper left")
        save(figure, stem)


def deltas(data: dict[str, Any], stem: Path) -> None:
    """6(b)"""
    with mpl.rc_context(STYLE):
        figure, axes = canvas()
        scenarios = list(data["ratios"])
        ways = list(data["ratios"][scenarios[0]])
        width = 0.8 / len(ways)
        colours = ["#999999", COLOURS[5], COLOURS[1], COLOURS[4], COLOURS[0]]
        for number, way in enumerate(ways):
            x = [place + (number - (len(ways) - 1) / 2) * width for place in range(len(scenarios))]
            y = [data["ratios"][scenario][way] for scenario in scenarios]
            bars = axes.bar(x, y, width * 0.92, color=colours[number % 5], label=way)
            axes.bar_label(bars, fmt="%.2f", fontsize=5.5, padding=1)
        axes.set_xticks(range(len(scenarios)), [name.replace(" (", "\n(") for name in scenarios])
        axes.set_ylim(0, 1.12)
        axes.grid(axis="x", visible=False)
        axes.set_ylabel("bytes stored / bytes of the weights")
        axes.set_title("6(b) Delta schemes, lossless float32")
        axes.legend(loc="upper center", ncols=3, fontsize=7.5)
        save(figure, stem)


def plans(data: dict[str, Any], stem: Path) -> None:
    """6(c)"""
    with mpl.rc_context(STYLE):
        figure, axes = canvas()
        mst, spt = data["mst"]["storage"] / 1e6, data["spt"]["recreation"] / 1e3
        axes.axhline(mst, color="#555555", linestyle=":", linewidth=1.2)
        axes.axvline(spt, color="#555555", linestyle=":", linewidth=1.2)
        for number, (name, points) in enumerate(data["series"].items()):
            points = sorted(points, key=lambda point: point["recreation"])
            x = [point["recreation"] / 1e3 for point in points]
            y = [point["storage"] / 1e6 for point in points]
            axes.plot(
                *(x, y),
                marker=MARKERS[number],
                markersize=4,
                linewidth=1,
                color=COLOURS[number],
                label=name,
            )
        axes.set_xscale("log")
        ticks = [3, 5, 10, 20, 30, 50, 100, 200, 500, 1000]
        low, high = axes.get_xlim()
        axes.set_xticks([tick for tick in ticks if low <= tick <= high])
        axes.xaxis.set_major_formatter("{x:g}")
        axes.minorticks_off()
        axes.text(high, mst, "MST: least storage ", ha="right", va="top", fontsize=7.5)
        bottom = axes.get_ylim()[0]
        text = "SPT: least recreation"
        axes.text(spt * 1.02, bottom, f" {text}", va="bottom", fontsize=7.5, rotation=90)
        axes.set_xlabel("mean recreation cost of a checkpoint (ms, modelled)")
        axes.set_ylabel("storage (MB)")
        axes.set_title(
            f"6(c) Plans for {data['snapshots']} checkpoints, {data['matrices']} tensors"
        )
        axes.legend(loc="upper right")
        save(figure, stem)


def progressive(data: dict[str, Any], stem: Path) -> None:
    """6(d)"""
    # Wider lines lie below narrower ones, so that equal ones can be seen.
    ways = {
        "paper, IEEE planes": (COLOURS[5], "s", 2.6),
        "paper, fixed point": (COLOURS[1], "^", 1.6),
        "dlv": (COLOURS[0], "o", 1.2),
    }
    with mpl.rc_context(STYLE):
        figure = Figure(figsize=(9.6, 5.6), layout="constrained")
        panels = figure.subplots(2, 3, sharex=True, sharey=True)
        for axes, (title, series) in zip(panels.flat, data["series"].items(), strict=False):
            for name, points in series.items():
                way, top = name.rsplit(", top-", 1)
                colour, marker, width = ways[way]
                axes.plot(
                    [100 * point["read"] for point in points],
                    [100 * point["open"] for point in points],
                    marker=marker,
                    markersize=4.5,
                    linewidth=width,
                    drawstyle="steps-post",  # until the next level is read nothing changes
                    linestyle="-" if top == "1" else ":",
                    markerfacecolor=colour if top == "1" else "white",
                    color=colour,
                    label=f"{way}, top-{top}",
                )
            axes.set_title(title, fontsize=9)
            axes.set_xticks([0, 25, 50, 75, 100])
        for axes in panels[:, 0]:
            axes.set_ylabel("rows not certain (%)")
        for axes in panels[-1]:
            axes.set_xlabel("bits of the weights read (%)")
        handles, labels = panels.flat[0].get_legend_handles_labels()
        figure.suptitle(f"6(d) Progressive evaluation, {data['rows']} rows", fontsize=10)
        figure.legend(handles, labels, loc="outside lower center", ncols=3)
        save(figure, stem)
