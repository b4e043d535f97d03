"""`dlv commit`: record the staged files as a version."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path
from typing import Any

from dlv.commands.shared import planning
from dlv.commands.shared.invocation import Invocation, commit_message, is_data_set, open_weights
from dlv.commands.shared.options import command, option
from dlv.commands.shared.parameters import parameters
from dlv.errors import UsageError


@command(
    "commit",
    examples=[
        "dlv add . && dlv commit -m 'Smaller learning rate'",
        "dlv commit -a -m 'Trained on' --param seed=8",
        "dlv commit -m 'Evaluated again' --param seed=7 --param note='two runs'",
    ],
    exits={
        5: "a file changed after it was staged, or the name is a tag",
        9: "a pickle that could execute code, or an unsafe file name",
    },
)
@option(
    "-m",
    "--message",
    aliases=["--commit_msg"],
    metavar="TEXT",
    help="Commit message [default: from $EDITOR].",
)
@option("-a", "--all", "everything", is_flag=True, help="Stage changed and missing files first.")
@option(
    "--name",
    aliases=["--model_name"],
    metavar="NAME",
    help="Model to commit to [default: the parent's].",
)
@option(
    "--parent",
    "parents",
    multiple=True,
    metavar="REF",
    complete="reference",
    help="Parent version [default: HEAD, if the model comes from it].",
)
@option("--orphan", is_flag=True, help="Start a new model without a parent.")
@option(
    "--metrics-file",
    "metrics",
    multiple=True,
    metavar="FILE",
    help="Read final metrics from JSON, TOML or YAML.",
)
@option("--tb", "folder", metavar="DIR", help="Read TensorBoard event files below DIR.")
@option(
    "--log",
    "logs",
    multiple=True,
    metavar="FILE",
    help="Read metrics from a CSV or JSON lines log.",
)
@option("--log-step", metavar="COL", help="Column of a log with the step.")
@option("--log-time", metavar="COL", help="Column of a log with the time.")
@option(
    "--param",
    "params",
    multiple=True,
    metavar="K=V",
    help="Set a hyperparameter; V is JSON or a string.",
)
@option(
    "--quantize", "scheme", metavar="SCHEME", help="Round the weights: fp16, bf16, uniform:8, .."
)
@option("--archive/--no-archive", default=None, help="Compress it and its parents afterwards.")
@option("--bounds/--no-bounds", default=None, help="Store bounds for eval --progressive.")
@option("--allow-empty", is_flag=True, help="Commit even if nothing changed.")
def run(
    call: Invocation,
    message: str | None,
    everything: bool,
    folder: str | None,
    archive: bool | None,
    bounds: bool | None,
    **given: Any,
) -> None:
    """Record the staged files as a version.

    Versions are named NAME@1, NAME@2, and so on. A version inherits the files and network of its
    parent; new weights replace the old ones. Tensors that are already stored take no space.
    Under a new name, HEAD is the parent if it has a tensor of the same name and shape or the same
    network; under the name of another model, that model's newest version is.
    """
    repository = call.repository  # before the editor opens: it may not be there
    given_something = everything or folder is not None or given["allow_empty"]
    if not given_something and not any(given[name] for name in ("params", "logs", "metrics")):
        import dlv.versions.commit as committing

        committing.check_staged(repository, open_weights, is_data_set)
    message = commit_message(call) if message is None else message.strip()
    if not message:
        raise UsageError("commit message required", hint="dlv commit -m 'what changed'")
    # Nothing is computed here that its threads could share, and to start them takes time.
    import dlv.views.versions as view

    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    columns = {"step": given.pop("log_step"), "time": given.pop("log_time")}
    with call.progress("Storing") as bar, contextlib.ExitStack() as stack:
        import dlv.versions.commit as committing

        if everything:
            committing.stage_tracked(
                *(repository, open_weights, is_data_set),
                optimizer=call.config.get("commit.optimizer"),
            )
        events = []
        if folder is not None:
            import dlv.curves.ingest as ingest

            opened = ingest.event_logs_of_folder(repository.path, Path(call.directory, folder))
            events.append(stack.enter_context(contextlib.closing(opened)))
        made = committing.commit(
            repository,
            committing.Request(
                message=message,
                author=call.author,
                parameters=parameters(given.pop("params")),
                events=events,
                logs=[(Path(call.directory, file), columns) for file in given.pop("logs")],
                metrics=[Path(call.directory, file) for file in given.pop("metrics")],
                usual_scheme=call.config.get("commit.quantize"),
                recheck=call.config.get("commit.recheck"),
                jobs=call.jobs,
                progress=bar.advance,
                total=bar.expect,
                **given,
            ),
        )
    saved = None
    if archive if archive is not None else call.config.get("commit.archive"):
        saved = planning.after_commit(call, made.id, made.parents)
    record = None
    if bounds if bounds is not None else call.config.get("commit.bounds"):
        record = planning.bounds_after_commit(call, made.id, requested=bounds is not None)
    for warning in made.warnings:
        call.output.warn(warning)
    if made.rounded:
        many = "1 tensor" if made.rounded == 1 else f"{made.rounded} tensors"
        call.output.warn(
            f"{made.name}@{made.number} is quantized to {made.scheme} ({many}); the exact weights"
            " exist only in your files"
        )
    document, line = view.committed(made, saved, record, terminal=call.output.terminal)
    call.output.emit("commit", document, line, ids=[made.id])
    changes = [str(made.files)] if any(made.files) else []
    call.output.message("; ".join([*changes, made.parentage]))
    if not made.parents:
        call.next_step("to list versions: dlv list; to describe this one: dlv desc")
