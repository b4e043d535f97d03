"""Sign refs with SSH keys, and verify signatures, by running `ssh-keygen`.

This requires no package, and users have SSH keys. A ref is signed without its signature. It names
manifest, locator and the ref before it by hash, so one signature covers the version, where its
bytes are, and the history.
"""

from __future__ import annotations

import subprocess
import tempfile
from collections.abc import Collection, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import dlv.disk.children as children
from dlv.errors import DlvError, NotFound, UnsafeInput, UsageError
from dlv.hub.history import published
from dlv.hub.records import Ref

if TYPE_CHECKING:
    from dlv.hub.remotes import Remote

NAMESPACE = "dlv-ref"
_PROGRAM = "ssh-keygen"
_SECONDS = 60  # a key with a passphrase asks for it


def sign(ref: Ref, key: Path) -> Ref:
    """Return the ref with a signature. `key`: a private key, or a public one that an agent has."""
    if not key.is_file():
        raise NotFound(f"no such key: {key}", hint="to create one: ssh-keygen -t ed25519")
    done = _run(["-Y", "sign", "-n", NAMESPACE, "-f", str(key)], _content(ref))
    if done.returncode:
        raise UsageError(f"cannot sign with {key}", why=_last_line(done.stderr))
    return replace(ref, sig=done.stdout.decode("ascii"))


def signer(ref: Ref, signers: Path) -> str | None:
    """Return the signer of a ref, None without a signature; UnsafeInput if it is invalid.

    `signers` is an allowed-signers file of SSH, or a public key.
    """
    if ref.sig is None:
        return None
    label = f"{ref.name}@{ref.number}"
    with tempfile.TemporaryDirectory(prefix="dlv-") as folder:
        allowed, signature = Path(folder, "allowed"), Path(folder, "signature")
        allowed.write_text(_allowed(signers))
        signature.write_text(ref.sig)
        search = _run(["-Y", "find-principals", "-f", str(allowed), "-s", str(signature)], b"")
        names = search.stdout.decode("utf-8", "replace").splitlines()
        if search.returncode or not names:
            raise UnsafeInput(f"{label} is signed by an unknown key", why=f"not in {signers}")
        words = ["-Y", "verify", "-n", NAMESPACE, "-f", str(allowed), "-I", names[0]]
        done = _run([*words, "-s", str(signature)], _content(ref))
    if done.returncode:
        raise UnsafeInput(f"the signature of {label} is invalid", why=_last_line(done.stdout))
    return names[0]


def check(refs: Sequence[Ref], signers: Path | None) -> None:
    """Refuse refs that are not signed by one of the signers."""
    if signers is None:
        raise UsageError(
            "the keys whose signatures count are unknown",
            hint="dlv config core.allowedsigners FILE",
        )
    for ref in refs:
        if signer(ref, signers) is None:
            raise UnsafeInput(f"{ref.name}@{ref.number} is not signed")


def is_signed(remote: Remote, versions: Collection[str], signers: Path | None) -> bool:
    """Return whether a known signer has signed these versions of a remote.

    Without a signature, only the remote vouches for the first planes of the weights.
    """
    refs = [
        ref
        for name in remote.history.loaded()
        for ref in published(remote.history.known(name)).values()
        if ref.manifest in versions
    ]
    try:
        check(refs, signers)
    except (UnsafeInput, UsageError):
        return False
    return {ref.manifest for ref in refs} == set(versions)


def _content(ref: Ref) -> bytes:
    return replace(ref, sig=None).encode()


def _allowed(signers: Path) -> str:
    """Return the content of an allowed-signers file; a public key is allowed under its comment."""
    try:
        text = signers.read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise NotFound(f"cannot read {signers}", why=str(error)) from error
    words = text.split()
    if words and words[0].startswith(("ssh-", "ecdsa-", "sk-")):
        name = words[2] if len(words) > 2 else signers.stem
        return f"{name} {words[0]} {words[1]}\n"
    return text


def _run(words: Sequence[str], data: bytes) -> subprocess.CompletedProcess[bytes]:
    try:
        with tempfile.TemporaryFile() as stdin:
            stdin.write(data)
            stdin.seek(0)
            how = {"stdin": stdin, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
            return children.run([_PROGRAM, *words], timeout=_SECONDS, **how)
    except FileNotFoundError:
        raise DlvError(
            f"{_PROGRAM} is required for signatures", hint="install OpenSSH (openssh-client)"
        ) from None
    except subprocess.TimeoutExpired:
        raise UsageError(f"{_PROGRAM} did not finish within {_SECONDS} s") from None


def _last_line(output: bytes) -> str:
    lines = output.decode("utf-8", "replace").strip().splitlines()
    return lines[-1] if lines else "ssh-keygen gave no reason"
