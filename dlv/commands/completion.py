"""`dlv completion`: shell completion."""

from __future__ import annotations

import click

from dlv.commands.shared.invocation import Invocation
from dlv.commands.shared.options import argument, command, option
from dlv.terminal.output import Verbatim

_NEXT = {
    "bash": "open a new shell (requires the package bash-completion)",
    "zsh": "add `fpath+=({folder})` to ~/.zshrc before compinit, then open a new shell",
    "fish": "open a new shell",
}


@command("completion", examples=["dlv completion bash", "dlv completion fish --install"])
@argument("shell", metavar="SHELL", type=click.Choice(["bash", "zsh", "fish"]))
@option("--install", is_flag=True, help="Write the script to where the shell finds it.")
def run(call: Invocation, shell: str, install: bool) -> None:
    """Print or install shell completion.

    SHELL is bash, zsh or fish. Commands, options, models, versions, tags and config keys are
    completed.
    """
    import dlv.terminal.completion as completion

    script = completion.script(shell)
    written = None
    if install:
        import dlv.disk.user_files as user_files

        path = completion.install_path(shell, call.environ)
        user_files.write(path, script.encode(), folders=True)
        written = str(path)
        call.output.hint(_NEXT[shell].format(folder=path.parent))
    body = [written] if written else [Verbatim(script.splitlines())]
    call.output.emit("completion", {"script": script, "written": written}, *body, ids=[])
