"""Write golden bytes: `tests/golden/NAME/make.py` fills tests/golden/NAME/VERSION, once.

VERSION is that of the format, and stands in `make.py`.

What a released dlv wrote must stay readable for ever, so files that exist are never replaced.
"""

from __future__ import annotations

import runpy
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent / "tests" / "golden"


def main(arguments: list[str]) -> str | None:
    makers = sorted(path.parent.name for path in ROOT.glob("*/make.py"))
    if len(arguments) != 1 or arguments[0] not in makers:
        return f"usage: make golden NAME=<one of: {', '.join(makers) or 'none yet'}>"
    maker = runpy.run_path(str(ROOT / arguments[0] / "make.py"))
    folder = ROOT / arguments[0] / str(maker["VERSION"])
    if folder.exists():
        return f"{folder} exists: golden bytes are never written again; raise the version"
    folder.mkdir()
    maker["make"](folder)
    print(f"wrote {len(list(folder.iterdir()))} files to {folder}")
    return None


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
