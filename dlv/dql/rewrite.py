"""Bound queries rewritten so that they are easier to ask, with the same answer."""

from __future__ import annotations

from collections.abc import Callable

from dlv.dql.bound import Bound

RULES: tuple[Callable[[Bound], Bound], ...] = ()


def rewrite(bound: Bound) -> tuple[Bound, list[str]]:
    """The query after all rules, and the names of those that changed it."""
    fired = []
    for rule in RULES:
        changed = rule(bound)
        if changed != bound:
            fired.append(rule.__name__)
            bound = changed
    return bound, fired
