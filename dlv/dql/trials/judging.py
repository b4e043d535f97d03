"""Checks that trials will log the metrics by which they are judged, ordered and picked."""

from __future__ import annotations

from collections.abc import Iterable

from dlv.dql.bind.bound import Evaluation
from dlv.dql.trials.preparing import Planned
from dlv.errors import UsageError, nearest
from dlv.training.config import TRAINER


def check_metrics(work: Evaluation, trials: Iterable[Planned]) -> None:
    """Check before anything starts. Only the torch trainer's metrics are known in advance."""
    configs = [trial.config for trial in trials]
    if not configs or any(config.trainer != TRAINER for config in configs):
        return
    logged = {name for config in configs for name in config.values["metrics"]} | {"train_loss"}
    asked = [rule["metric"] for rule in work.rules]
    asked += [order.name for order in work.order if order.kind == "metric"]
    asked += [work.sampling.metric] if work.sampling.metric is not None else []
    for name in asked:
        if name not in logged:
            raise UsageError(
                f"no trial would log `{name}`",
                why=f"they log {', '.join(sorted(logged))}",
                did_you_mean=nearest(name, logged),
                hint="config.metrics says what is logged",
            )
