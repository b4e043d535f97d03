"""`dlv hub`: run a hub, and administer it from the shell."""

from __future__ import annotations

from dlv.commands.shared.options import group

run = group(
    "hub",
    """Run a hub, and manage its users.

    A hub is a server on which teams publish and find models. These commands work on its database
    directly, so that they need no token: --data names the folder of the hub, or --database the
    address of its database. The environment variables DLV_HUB_DATA and DLV_HUB_DATABASE do the
    same.
    """,
    table={
        "serve": ("of_hub.serve:run", "Run the server of a hub"),
        "user": ("of_hub.user:run", "Add, change or list users"),
        "token": ("of_hub.token:run", "Create, list or revoke tokens"),
        "member": ("of_hub.member:run", "Give users roles in namespaces"),
        "quota": ("of_hub.quota:run", "Limit the bytes of namespaces"),
        "audit": ("of_hub.audit:run", "Show or verify the audit log"),
        "check": ("of_hub.check:run", "Check the database and the objects of a hub"),
        "backup": ("of_hub.backup:run", "Add a backup of a hub to a folder"),
        "restore": ("of_hub.backup:restore", "Fill an empty hub from a backup"),
    },
    examples=[
        "dlv hub user add ada --operator --data ./hub",
        "dlv hub token create ada --data ./hub",
        "dlv hub serve --data ./hub",
    ],
)
