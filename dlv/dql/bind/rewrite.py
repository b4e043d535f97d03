"""Bound queries rewritten so that they are easier to ask, with the same answer.

What is decided where names are bound (saved queries put in, constants reckoned, nodes that
`where` chose) and where SQL is made (conjunctions split, layers of selectors and templates,
ranges of prefixes, what comes first) is no rule here.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from dlv.dql.bind.bound import Bound
from dlv.dql.bind.rules.constants import fold_constants
from dlv.dql.bind.rules.negations import push_not_down
from dlv.dql.bind.rules.subqueries import push_into_subqueries
from dlv.metadata.select.relations import Query

Rule = Callable[[Query], Query]

RULES: tuple[Rule, ...] = (fold_constants, push_not_down, push_into_subqueries)


def rewrite(bound: Bound) -> tuple[Bound, list[str]]:
    """The same after all rules, and the names of those that changed something."""
    fired = []
    for rule in RULES:
        made = applied(rule, bound)
        if made is not bound:
            fired.append(rule.__name__)
            bound = made
    return bound, fired


def applied(rule: Rule, bound: Bound) -> Bound:
    """One rule on all queries of a statement; the same object if it changes none."""
    query = None if bound.query is None else rule(bound.query)
    derivations = tuple(
        work if (source := rule(work.source)) is work.source else replace(work, source=source)
        for work in bound.derivations
    )
    same = all(new is old for new, old in zip(derivations, bound.derivations, strict=True))
    trained = bound.evaluation
    if trained is not None and (source := rule(trained.source)) is not trained.source:
        trained = replace(trained, source=source)
    if query is bound.query and same and trained is bound.evaluation:
        return bound
    return replace(bound, query=query, derivations=derivations, evaluation=trained)
