"""The same targets, with inputs that grow where new code is reached: python -m tests.fuzz.guided

    python -m tests.fuzz.guided manifest -runs=100000 -max_len=65536

It needs atheris, which has wheels for Linux (`pip install atheris`); what follows the target goes
to libFuzzer. The first input that ends otherwise than in a result or a DlvError ends the run, and
stands in a file `crash-...`.
"""

from __future__ import annotations

import random
import sys
import tempfile
from pathlib import Path
from typing import Any

USAGE = f"{__doc__}\ntargets: "


def main() -> None:
    try:
        import atheris
    except ImportError:
        sys.exit("atheris is not installed: pip install atheris")
    with atheris.instrument_imports(include=["dlv"]):
        from tests.fuzz.run import limit_time, outcome
        from tests.fuzz.targets import TARGETS
    if len(sys.argv) < 2 or sys.argv[1] not in TARGETS:
        sys.exit(USAGE + ", ".join(TARGETS))
    name, *rest = sys.argv[1:]
    target = TARGETS[name]
    seeds = list(target.seeds())
    limit_time()

    def one_input(data: bytes) -> None:
        kind, told = outcome(target, data)
        if kind == "fault":
            raise RuntimeError(told)

    def changed(data: bytes, most: int, seed: int) -> bytes:
        """Half of the inputs by libFuzzer's own changes, half by those that keep to the form."""
        if seed & 1:
            return bytes(atheris.Mutate(data, most))
        try:
            made = target.change(random.Random(seed), data or seeds[0], seeds)
        except ValueError:  # what is no JSON cannot be changed as JSON
            return bytes(atheris.Mutate(data, most))
        return made[:most]

    with tempfile.TemporaryDirectory() as corpus:
        for place, data in enumerate(seeds):
            (Path(corpus) / f"seed-{place}").write_bytes(data)
        line = [sys.argv[0], *rest, corpus]
        options: dict[str, Any] = {"custom_mutator": changed}
        atheris.Setup(line, one_input, **options)
        atheris.Fuzz()


if __name__ == "__main__":
    main()
