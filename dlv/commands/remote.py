"""`dlv remote`: where a repository publishes to and pulls from."""

from __future__ import annotations

from typing import Any

import click

import dlv.views.maintained as view
from dlv.commands.shared.invocation import Invocation
from dlv.commands.shared.options import argument, command, option
from dlv.errors import Conflict, NotFound, UsageError

ACTIONS = ("list", "add", "remove", "set-url", "probe", "retire", "alias", "gc")
GRACE = "14d"


@command(
    "remote",
    examples=[
        "dlv remote add origin ../team",
        "dlv remote",
        "dlv remote probe origin",
        "dlv publish lenet@1 && dlv remote retire origin:lenet@1",
        "dlv remote add hub https://hub.example.com/ada/models && dlv publish lenet@1 --remote hub"
        " && dlv remote alias hub:lenet@1 production",
        "dlv remote gc origin --dry-run",
        "dlv remote remove origin",
    ],
    exits={
        4: "no such remote",
        5: "the name is taken, or objects are being deleted",
        7: "the remote cannot be reached, or cannot be shared safely",
    },
)
@argument("action", type=click.Choice(ACTIONS), default="list")
@argument("name", required=False, metavar="[NAME|REF]", complete="remote")
@argument("url", required=False, metavar="[URL|ALIAS]")
@option("--single-writer", is_flag=True, help="Accept a store that only one person writes to.")
@option("--grace", metavar="TIME", help="Delete what was listed so long ago [default: 14d].")
@option("--abandon", is_flag=True, help="Give up a gc that was interrupted.")
@option("--dry-run", is_flag=True, help="Show what gc would delete.")
@option("--delete", is_flag=True, help="Delete an alias.")
def run(
    call: Invocation,
    action: str,
    name: str | None,
    url: str | None,
    single_writer: bool,
    delete: bool,
    **given: Any,
) -> None:
    """List, add or change remotes.

    URL is a folder, s3://BUCKET/PREFIX, gs://.., az://.., or https://HUB/NAMESPACE/REPOSITORY; the
    https:// address of a folder can only be read. add tries out what the store does, and refuses
    one on which two writers could lose a version. retire withdraws a version. alias lets a name
    such as production mean a version on a hub, for everybody. gc lists objects that no version
    needs, and deletes them when it is run again after --grace, but not during a publish.
    """
    if action == "alias":
        _alias(call, name, url, delete=delete)
        return
    if delete:
        raise UsageError("--delete requires alias", hint="dlv remote alias REF ALIAS --delete")
    if action in ("retire", "gc"):
        _maintain(call, action, name, **given)
        return
    if any(given.values()):
        raise UsageError("--grace, --abandon and --dry-run require gc", hint="dlv remote gc NAME")
    import dlv.hub.names as names
    import dlv.hub.remotes as remotes
    from dlv.hub.stores.opening import absolute

    repository = call.repository
    known = call.config.remotes()
    if action == "list":
        if name is not None:
            raise UsageError("dlv remote list takes no name", hint="dlv remote list")
        view.emit_remotes(call.output, known)
        if not known:
            call.output.message("no remotes yet")
        return
    if name is None:
        raise UsageError(f"dlv remote {action} requires a NAME", hint="dlv remote --help")
    if (url is not None) != (action in ("add", "set-url")):
        words = "NAME URL" if action in ("add", "set-url") else "NAME"
        raise UsageError(f"usage: dlv remote {action} {words}", hint="dlv remote --help")
    names.check_remote_name(name)
    if action == "add" and name in known:
        raise Conflict(
            f"remote `{name}` exists", why=known[name], hint=f"dlv remote set-url {name} {url}"
        )
    if action != "add" and name not in known:
        raise NotFound(f"no remote `{name}`", hint="dlv remote list")
    if action == "remove":
        call.config.unset("repository", f"remote.{name}")
        call.output.message(f"removed the remote {name}; its data stays at {known[name]}")
    else:
        address = known[name] if url is None else absolute(url, call.directory)
        probe: dict[str, Any] = remotes.try_out(
            repository, name, address, call.environ, single_writer=single_writer
        )
        if url is not None:
            names.forget(repository, name)
            call.config.set("repository", f"remote.{name}", address)
        known[name] = address
        view.emit_remotes(call.output, {name: address}, probe)
        return
    del known[name]
    view.emit_remotes(call.output, known)


def _alias(call: Invocation, name: str | None, alias: str | None, *, delete: bool) -> None:
    """List aliases, or change one: dlv remote alias origin:lenet@3 production."""
    import dlv.hub.names as names
    import dlv.hub.remotes as remotes
    import dlv.hub.service as service

    if (alias is not None or delete) and (alias is None or ":" not in (name or "")):
        raise UsageError(
            "a version and an alias must be named",
            hint="dlv remote alias origin:lenet@3 production",
        )
    references = [] if name is None or ":" not in name else [name]
    name, url, plain = names.split(call.config, None if references else name, references)
    opened = remotes.open_remote(call.repository, name, url, call.environ)
    if delete and alias is not None:
        service.delete_alias(opened, plain[0].partition("@")[0], alias)
        call.output.message(f"deleted the alias {alias}")
    elif alias is not None:
        service.set_alias(opened, plain[0], alias)
        call.output.message(f"{name}:{plain[0].partition('@')[0]}@{alias} is {plain[0]} now")
    models = {reference.partition("@")[0] for reference in plain}
    listed = [each for each in service.aliases(opened) if not models or each.model in models]
    view.emit_aliases(call.output, name, url, listed)


def _maintain(
    call: Invocation, action: str, name: str | None, grace: str | None, abandon: bool, dry_run: bool
) -> None:
    import dlv.hub.maintenance as maintenance
    import dlv.hub.names as names
    import dlv.hub.remotes as remotes
    import dlv.upkeep.mark as mark

    reference = None
    if action == "retire":
        if name is None or "@" not in name:
            raise UsageError("a version must be named", hint="dlv remote retire origin:lenet@2")
        name, url, (reference,) = names.split(call.config, None, [name])
    else:
        name, url = names.address(call.config, name)
    opened = remotes.open_remote(call.repository, name, url, call.environ)
    if reference is not None:
        maintenance.retire(call.repository, opened, reference, call.author, call.signing_key)
        view.emit_remotes(call.output, {name: url})
        call.output.message(f"{name} no longer offers {reference}")
        return
    wait = mark.duration(grace or GRACE)
    done = maintenance.collect(call.repository, opened, wait, abandon=abandon, dry_run=dry_run)
    view.emit_collected(call.output, name, url, done)
