"""`evaluate` bound: of which networks, what is varied, what is kept, where it runs."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import dlv.repository.revisions as revisions
from dlv.dql.bind import conditions, configurations, constants, sources
from dlv.dql.bind.binder import Binder, Reported
from dlv.dql.bind.bound import Evaluation, Ranked, Sampling, Varied, Workers
from dlv.dql.bind.configurations import CONFIG, Configuration
from dlv.dql.bind.constants import WHOLE, Wanted, is_constant, plain, read_arguments
from dlv.dql.bind.derivations import check_into
from dlv.dql.bind.sources import groups
from dlv.dql.bind.things import ANY, BOOLEAN, NUMBER, TEXT, Variable
from dlv.dql.words import ast
from dlv.errors import nearest
from dlv.metadata.select import relations
from dlv.metadata.select.relations import Item, Query, Select
from dlv.training.ledger.space import Choices, Circular, Dimension, Uniform, Whole, ordered

_SEED = Wanted(WHOLE, least=0)
_DRAWS = Wanted(WHOLE, required=True, least=1, most=100_000)
SAMPLERS: Mapping[str, tuple[Mapping[str, Wanted], str]] = {
    "grid": ({}, "grid"),
    "random": ({"n": _DRAWS, "seed": _SEED}, "random(20, seed = 7)"),
    "tpe": (
        {
            "n": _DRAWS,
            "metric": Wanted(ANY),
            "seed": replace(_SEED, named=True),
            "batch": Wanted(WHOLE, named=True, least=1, most=1000),
        },
        'tpe(50, m["loss"] asc, seed = 1)',
    ),
}
PLACES: Mapping[str, tuple[Mapping[str, Wanted], str]] = {
    "local": (
        {"workers": Wanted(WHOLE, least=1, most=1024), "gpus": Wanted(WHOLE, least=0, most=1024)},
        "local(workers = 4)",
    ),
    "ray": (
        {
            "address": Wanted(TEXT),
            "cpus": Wanted(NUMBER, named=True, above=0, most=1024),
            "gpus": Wanted(NUMBER, named=True, least=0, most=1024),
            "workers": Wanted(WHOLE, named=True, least=1, most=100_000),
        },
        'ray("auto", cpus = 1)',
    ),
}
BUDGET: Mapping[str, Wanted] = {
    "trials": Wanted(WHOLE, named=True, least=1),
    "hours": Wanted(NUMBER, named=True, above=0),
    "steps": Wanted(WHOLE, named=True, least=1),
    "trial_seconds": Wanted(NUMBER, named=True, above=0),
}
FIGURES = ("rank", "trial", "network", "steps", "seconds", "state")


def evaluation(binder: Binder, part: ast.Evaluate, query: ast.Query) -> Evaluation:
    """All that is wrong with it is noted; Reported then. `query`: what stands around it."""
    before = len(binder.notes.faults)
    missing = len(binder.notes.missing)
    limit = offset = None
    with binder.collecting():
        limit = constants.whole(binder, query.limit, "limit")
        offset = constants.whole(binder, query.offset, "offset")
    with binder.collecting():
        check_into(binder, part)
    config = configurations.read_settings(binder, part.settings, part.vary)
    varied = _varied(binder, part, config)
    binder, ranges = sources.declared(
        binder, part.sources, [part.where], [part.name, CONFIG], alone=True
    )
    where = None
    if part.where is not None:
        where = conditions.noted(binder.within(clause="where"), part.where)
    variable = _source(binder, part)
    names = list(dict.fromkeys([part.name, *binder.scope.variables]))
    judged = [(call, rule) for call in part.keep for rule in _tried(binder, keep_rule, names, call)]
    rules = [rule for _, rule in judged]
    sampling = _sampling(binder, part, names, rules)
    budget: dict[str, Any] = {}
    with binder.collecting():
        example = "budget(trials = 200)"
        budget = read_arguments(binder, "budget", part.budget, BUDGET, part.span, example)
    order = [made for each in query.order_by for made in _tried(binder, _ranked, names, each)]
    workers = _workers(binder, part)
    if sampling.kind == "grid":
        _check_grid(binder, varied)
    _check_steps(binder, config, [made for _, made in varied], judged)
    if len(binder.notes.faults) > before or len(binder.notes.missing) > missing:
        raise Reported
    whole = Item(variable.name, relations.Whole(variable.unique))
    select = Select((whole,), ranges, where, distinct=len(ranges) > 1)
    return Evaluation(
        name=part.name,
        variable=variable.unique,
        source=Query(select),
        config=config.file,
        settings=tuple(config.settings),
        varied=tuple(made for _, made in varied),
        sampling=sampling,
        rules=tuple(rules),
        budget=budget,
        workers=workers,
        into=part.into,
        order=tuple(order),
        limit=limit,
        offset=offset,
        source_text=_said(part),
        span=part.span,
    )


def _said(part: ast.Evaluate) -> str:
    query = part.sources[0].query
    return query.name if len(part.sources) == 1 and isinstance(query, ast.Saved) else part.name


def _tried(binder: Binder, make: Any, names: Sequence[str], part: Any) -> list[Any]:
    """What is made of it, or nothing where a fault was noted."""
    with binder.collecting():
        return [make(binder, names, part)]
    return []


def _source(binder: Binder, part: ast.Evaluate) -> Variable:
    """The variable whose networks are trained: that of its own name, or the only one."""
    found = binder.scope.variables.get(part.name)
    if found is None:
        if len(binder.scope.variables) > 1:
            first = next(iter(binder.scope.variables))
            binder.note(
                part.span,
                "ambiguous: which variable should be trained?",
                why=f"variables: {', '.join(binder.scope.variables)}",
                hint=f"evaluate {first} from ..",
            )
        found = next(iter(binder.scope.variables.values()))
    group = groups(binder.scope.variables, [part.where])
    for name in binder.scope.variables:
        if group[name] != group[found.name]:
            binder.warn(f"`{name}` is not joined to `{found.name}`")
    return found


def _varied(
    binder: Binder, part: ast.Evaluate, config: Configuration
) -> list[tuple[ast.Dimension, Varied]]:
    found: list[tuple[ast.Dimension, Varied]] = []
    for dimension in part.vary:
        with binder.collecting():
            made = configurations.varied(binder, dimension, config)
            found.append((dimension, made))
            for _, earlier in found[:-1]:
                twice = set(earlier.keys) & set(made.keys)
                if twice and earlier.when is None and made.when is None:
                    raise binder.fault(
                        dimension.span,
                        f"{'.'.join(('config', *min(twice)))} is varied twice",
                        hint="once with all of its values, or each with a `when`",
                    )
    if len(found) == len(part.vary):
        with binder.collecting():
            _check_circle(binder, part, [made for _, made in found])
    return found


def _check_circle(binder: Binder, part: ast.Evaluate, varied_keys: Sequence[Varied]) -> None:
    dimensions = [Dimension(each.keys, Choices(()), reads=each.reads) for each in varied_keys]
    try:
        ordered(dimensions)
    except Circular as error:
        raise binder.fault(
            part.vary[error.places[0]].span,
            "these conditions wait for each other",
            why=" and ".join(binder.short(part.vary[place].paths[0]) for place in error.places),
        ) from None


def _chosen(
    binder: Binder, call: ast.Call, known: Mapping[str, tuple[Mapping[str, Wanted], str]], what: str
) -> tuple[str, dict[str, Any]]:
    name = call.name.lower()
    if name not in known:
        raise binder.fault(
            ast.Span(call.span.start, call.span.start + len(call.name)),
            f"no {what} {call.name}",
            why=f"known: {', '.join(known)}",
            did_you_mean=nearest(name, known),
        )
    wanted, example = known[name]
    return name, read_arguments(binder, name, call.args, wanted, call.span, example)


def _sampling(
    binder: Binder, part: ast.Evaluate, names: Sequence[str], rules: Sequence[Mapping[str, Any]]
) -> Sampling:
    if part.using is None:
        return Sampling()
    with binder.collecting():
        kind, found = _chosen(binder, part.using, SAMPLERS, "way of picking")
        argument = found.pop("metric", None)
        metric: str | None = None
        direction: str | None = None
        if argument is not None:
            metric, direction = metric_direction(binder, names, argument)
        else:
            ranked = [rule for rule in rules if "direction" in rule]
            if kind == "tpe" and not ranked and len(rules) == len(part.keep):
                raise binder.fault(
                    part.using.span,
                    "tpe has no metric to optimize",
                    why="no `keep` rule names a metric to minimize or maximize",
                    hint=f'tpe({found["n"]}, {names[0]}["loss"])',
                )
            first: Mapping[str, Any] = ranked[0] if ranked else {}
            metric, direction = first.get("metric"), first.get("direction")
        return Sampling(kind=kind, metric=metric, direction=direction, **found)
    return Sampling()


def _workers(binder: Binder, part: ast.Evaluate) -> Workers:
    if part.on is None:
        return Workers()
    with binder.collecting():
        kind, found = _chosen(binder, part.on, PLACES, "place to run")
        count = found.pop("workers", None)
        return Workers(kind, count, **found)
    return Workers()


def _ranked(binder: Binder, names: Sequence[str], part: ast.Order) -> Ranked:
    value = part.value
    first = bool(part.nulls_first)
    if isinstance(value, ast.Path) and value.name == CONFIG:
        key = configurations.key_of(binder, value)
        return Ranked("config", binder.said(value), key, part.descending, first)
    if isinstance(value, ast.Path):
        only = value.trailers[0] if len(value.trailers) == 1 else None
        bare = value.name if not value.trailers and value.name not in names else None
        word = only.name if isinstance(only, ast.Attribute) and value.name in names else bare
        if word is not None and word.lower() in FIGURES:
            return Ranked("figure", word.lower(), (), part.descending, first)
    if isinstance(value, ast.Path) and value.name not in names:
        raise binder.fault(
            value.span,
            f"{binder.short(value)} cannot order trials",
            why=f"they have {', '.join(FIGURES)}, metrics, and what is varied",
            did_you_mean=nearest(value.name, [*FIGURES, *names]),
            hint=f'order by {names[0]}["loss"], config.base_lr, seconds',
        )
    metric = metric_name(binder, names, value)
    return Ranked("metric", metric, (), part.descending, first)


def _check_grid(binder: Binder, varied: Sequence[tuple[ast.Dimension, Varied]]) -> None:
    """Whether there are only so many values of everything."""
    for dimension, made in varied:
        span = dimension.span if dimension.domain is None else dimension.domain.span
        if isinstance(made.domain, Uniform):
            binder.note(
                span,
                f"a grid has no end of values of {binder.short(dimension.paths[0])}",
                why="they are a continuum",
                hint="using random(20), or values: linspace(0.5, 0.99, 5)",
            )
        elif isinstance(made.domain, Whole):
            count = made.domain.high - made.domain.low + 1
            if count > constants.MOST_VALUES:
                binder.note(
                    span, f"{count:,} values are too many for a grid", hint="using random(20)"
                )


def _check_steps(
    binder: Binder,
    config: Configuration,
    varied: Sequence[Varied],
    judged: Sequence[tuple[ast.Call, Mapping[str, Any]]],
) -> None:
    """No rule may wait for a step that some trial never reaches."""
    least = _fewest_steps(config, varied)
    for call, rule in judged:
        for name in ("step", "first"):
            step = rule.get(name)
            if step is not None and least is not None and step > least:
                binder.note(
                    call.span,
                    f"{rule['rule']} looks at step {step}, and trials have {least} steps",
                    hint="see config.steps",
                )


def _fewest_steps(config: Configuration, varied: Sequence[Varied]) -> int | None:
    """The least number of steps of a trial, as far as that is known before anything runs."""
    found: list[Any] = []
    for each in varied:
        if ("steps",) in each.keys:
            place = each.keys.index(("steps",))
            if isinstance(each.domain, Choices):
                found += [row[place] for row in each.domain.rows]
            elif isinstance(each.domain, Whole):
                found.append(each.domain.low)
            else:
                return None
            if each.when is not None:
                found.append(config.value(("steps",)))
    found = found or [config.value(("steps",))]
    return min((each for each in found if isinstance(each, int)), default=None)


# `keep`: which trials go on, as plain data that a ledger stores and decides by


_METRIC = Wanted(ANY, required=True)
RULES: Mapping[str, tuple[Mapping[str, Wanted], str]] = {
    "top": (
        {
            "k": Wanted(WHOLE, required=True, least=1),
            "metric": _METRIC,
            "step": Wanted(WHOLE, least=1),
        },
        'top(5, m["loss"], 100)',
    ),
    "asha": (
        {
            "metric": _METRIC,
            "eta": Wanted(WHOLE, least=2, most=1000),
            "first": Wanted(WHOLE, least=1),
            "sync": Wanted(BOOLEAN),
        },
        'asha(m["loss"], eta = 3, first = 10)',
    ),
    "median": ({"metric": _METRIC, "warmup": Wanted(WHOLE, least=0)}, 'median(m["loss"])'),
    "patience": (
        {
            "metric": _METRIC,
            "n": Wanted(WHOLE, required=True, least=1),
            "min_delta": Wanted(NUMBER, least=0),
        },
        'patience(m["loss"], 3)',
    ),
    "threshold": (
        {"metric": _METRIC, "step": Wanted(WHOLE, required=True, least=1)},
        'threshold(m["accuracy"] >= 0.9, 500)',
    ),
}
_DEFAULTS: Mapping[str, Mapping[str, Any]] = {
    "asha": {"eta": 3, "sync": False},
    "median": {"warmup": 5},
    "patience": {"min_delta": 0.0},
}
_TURNED = {"<": ">", "<=": ">=", ">": "<", ">=": "<="}
_DIRECTIONS = {"asc": "min", "desc": "max"}


def keep_rule(binder: Binder, names: Sequence[str], call: ast.Call) -> dict[str, Any]:
    """One rule; `names`: of the variables that metrics are asked of."""
    name = call.name.lower()
    if name not in RULES:
        raise binder.fault(
            ast.Span(call.span.start, call.span.start + len(call.name)),
            f"no rule {call.name}",
            why=f"rules are {', '.join(RULES)}",
            did_you_mean=nearest(name, RULES),
        )
    wanted, example = RULES[name]
    found = read_arguments(binder, name, call.args, wanted, call.span, example)
    argument = found.pop("metric")
    if name == "threshold":
        made = _threshold(binder, names, argument)
    else:
        made = dict(
            zip(("metric", "direction"), metric_direction(binder, names, argument), strict=True)
        )
    return {"rule": name, **_DEFAULTS.get(name, {}), **made, **found}


def metric_direction(
    binder: Binder, names: Sequence[str], argument: ast.Argument
) -> tuple[str, str]:
    """A metric, and whether it is to be small or large: "min" or "max"."""
    tag = metric_name(binder, names, argument.value)
    if argument.direction is not None:
        return tag, _DIRECTIONS[argument.direction]
    direction = revisions.direction_of(tag)
    if direction is None:
        said = binder.short(argument.value)
        raise binder.fault(
            argument.span,
            f"cannot rank by {said}: is higher or lower better?",
            why="its name does not say",
            hint=f"{said} asc keeps the smallest, {said} desc the largest",
        )
    return tag, direction


def metric_name(binder: Binder, names: Sequence[str], part: ast.Part) -> str:
    """The name of a metric that trials log: m["loss"], m.accuracy, m.metrics["loss"].last."""
    example = f'{names[0]}["loss"]'
    if not isinstance(part, ast.Path):
        raise binder.fault(part.span, f"{binder.short(part)} is not a metric", hint=example)
    if part.name not in names:
        raise binder.fault(
            ast.Span(part.span.start, part.span.start + len(part.name)),
            f"`{part.name}` is not a variable of this query",
            why=f"metrics are asked of {' or '.join(f'`{name}`' for name in names)}",
            did_you_mean=nearest(part.name, names),
        )
    trailers = list(part.trailers)
    if len(trailers) > 1 and _attribute_word(trailers[-1]) == "last":
        trailers.pop()
    if len(trailers) > 1 and _attribute_word(trailers[0]) == "metrics":
        trailers.pop(0)
    if len(trailers) == 1:
        (only,) = trailers
        if isinstance(only, ast.Attribute):
            return only.name
        if isinstance(only, ast.Selector) and not only.regular:
            return only.text
    raise binder.fault(
        part.span,
        f"{binder.short(part)} is not a metric",
        why="rules use the last logged value" if len(trailers) > 1 else None,
        hint=example,
    )


def _attribute_word(trailer: ast.Trailer) -> str | None:
    return trailer.name.lower() if isinstance(trailer, ast.Attribute) else None


def _threshold(binder: Binder, names: Sequence[str], argument: ast.Argument) -> dict[str, Any]:
    test = argument.value
    example = f'threshold({names[0]}["accuracy"] >= 0.9, 500)'
    if not isinstance(test, ast.Compare) or test.operator not in _TURNED:
        raise binder.fault(
            argument.span,
            f"{binder.short(test)} is not a threshold",
            why="it compares a metric with a number by < <= > or >=",
            hint=example,
        )
    left, operator, right = test.left, test.operator, test.right
    if is_constant(left) and not is_constant(right):
        left, operator, right = right, _TURNED[operator], left
    tag = metric_name(binder, names, left)
    value: Any = plain(binder, right) if is_constant(right) else None
    number = isinstance(value, (int, float)) and not isinstance(value, bool)
    if not number or not math.isfinite(value):
        raise binder.fault(right.span, f"{binder.short(right)} is not a number", hint=example)
    return {"metric": tag, "op": operator, "value": float(value)}


def rule_text(rule: Mapping[str, Any]) -> str:
    told = ", ".join(f"{key} {value}" for key, value in rule.items() if key != "rule")
    return f"{rule['rule']}: {told}"
