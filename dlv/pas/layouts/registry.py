"""The registry of layouts: what a config names."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from dlv.errors import NewerFormat
from dlv.pas.layouts.fixed import Fixed, Halved
from dlv.pas.layouts.segments import Ieee, Layout
from dlv.pas.layouts.segments import default_layout as default_layout
from dlv.pas.layouts.table import Table
from dlv.pas.layouts.units import Units

Config = Mapping[str, Any]

# id -> layout made from a config, and the keys that config must have. A maker raises Damaged
# for values that cannot be.
LAYOUTS: dict[str, tuple[Callable[[Config], Layout], frozenset[str]]] = {
    "ieee": (lambda _: Ieee(), frozenset({"id"})),
    "fixed": (Fixed.of_config, frozenset({"id", "rows", "zero_centre", "exponents"})),
    "halved": (Halved.of_config, frozenset({"id", "rows", "zero_centre"})),
    "units": (Units.of_config, frozenset({"id", "bytes"})),
    "table": (Table.of_config, frozenset({"id", "words", "data"})),
}


def layout_of(config: Config) -> Layout:
    """The layout that a config names."""
    made = LAYOUTS.get(str(config.get("id")))
    if made is None or set(config) != made[1]:
        raise NewerFormat(
            f"unknown layout {dict(config)!r}", hint="install the version of dlv that wrote it"
        )
    return made[0](config)


def bits_after(config: Config, planes: int) -> int:
    """Bits of each number that so many first planes tell."""
    layout = layout_of(config)
    if isinstance(layout, Fixed) and 0 < planes <= len(layout.depths):
        return layout.depths[planes - 1]
    if isinstance(layout, Units):
        return 8 * layout.unit * planes
    return 8 * planes
