"""`python -m dlv`."""

from __future__ import annotations

from dlv.cli import main

main()
