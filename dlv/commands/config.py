"""`dlv config`: values, where they come from, and changing them."""

from __future__ import annotations

from dlv.commands.shared.invocation import Invocation
from dlv.commands.shared.options import argument, command, option
from dlv.errors import UsageError
from dlv.terminal.table import Cell, Column, Table, Text


@command(
    "config",
    examples=[
        "dlv config",
        "dlv config --user user.name 'Ada Lovelace'",
        "dlv config user.name",
        "dlv config --show-origin",
        "dlv config --user --unset user.name",
    ],
    exits={2: "unknown key, or a value of the wrong type"},
)
@argument("key", required=False, complete="key")
@argument("value", required=False)
@option("--user", "level", flag_value="user", help="Use the user's file.")
@option("--repo", "level", flag_value="repository", help="Use the repository's file [default].")
@option("--system", "level", flag_value="system", help="Use the system's file.")
@option("--unset", is_flag=True, help="Delete KEY from the file.")
@option("--show-origin", is_flag=True, help="Show where each value comes from.")
def run(
    call: Invocation,
    key: str | None,
    value: str | None,
    level: str | None,
    unset: bool,
    show_origin: bool,
) -> None:
    """Show or change config keys.

    Without KEY, all keys are shown. A value is taken from the first of: command-line option,
    environment variable DLV_TABLE_KEY, the repository's file, the user's, the system's.
    """
    if unset and (key is None or value is not None):
        raise UsageError("--unset requires a KEY and no VALUE", hint="dlv config --unset user.name")
    import dlv.config as config_module

    if key is not None and (unset or value is not None):
        target = level or "repository"
        if unset:
            call.config.unset(target, key)
        elif value is not None:
            call.config.set(target, key, value)
        settings = [config_module.Config.load(call.repository_file, call.environ).setting(key)]
        if not call.json:
            return
    else:
        settings = [call.config.setting(key)] if key else call.config.values()
    if level and value is None and not unset:
        settings = [s for s in settings if s.origin.level == level]
    document = {
        "values": [
            {
                "key": s.key,
                "value": s.value,
                "origin": {
                    "level": s.origin.level,
                    "path": s.origin.path or None,
                    "line": s.origin.line,
                },
            }
            for s in settings
        ]
    }
    columns = [Column("key", fixed=True), Column("value"), Column("origin", fixed=True)]
    rows: list[list[Cell]] = [
        [s.key, config_module.shown(s.value) or None, Text(str(s.origin), "dim")] for s in settings
    ]
    if key:
        columns, rows = columns[1:], [row[1:] for row in rows]
    if not show_origin:
        columns, rows = columns[:-1], [row[:-1] for row in rows]
    if key and not show_origin:
        call.output.emit("config", document, *(config_module.shown(s.value) for s in settings))
    else:
        call.output.emit("config", document, Table(columns, rows))
