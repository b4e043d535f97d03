"""The tables of a hub. Objects are in the store; all decisions about them are made here."""

from __future__ import annotations

import sqlalchemy as sa

VERSION = 1

metadata = sa.MetaData()
Key = sa.BigInteger().with_variant(sa.Integer, "sqlite")
Time = sa.String(27)  # as dlv.canonical.timestamp writes it, so that text order is time order
Hash = sa.String(64)


def _plain(length: int) -> sa.String:
    """Text that PostgreSQL compares byte by byte, as SQLite does."""
    return sa.String(length).with_variant(sa.String(length, collation="C"), "postgresql")


def _key() -> sa.Column[int]:
    return sa.Column("id", Key, primary_key=True, autoincrement=True)


def _repository(*, primary_key: bool = False) -> sa.Column[int]:
    return sa.Column(
        "repository_id",
        Key,
        sa.ForeignKey("repository.id", ondelete="CASCADE"),
        primary_key=primary_key,
        nullable=False,
    )


state = sa.Table(
    "hub_state",
    metadata,
    sa.Column("key", sa.String(40), primary_key=True),
    sa.Column("value", sa.Text, nullable=False),
)

# A user, or an organization; each owns the namespace of its name.
account = sa.Table(
    "account",
    metadata,
    _key(),
    sa.Column("name", sa.String(64), nullable=False, unique=True),  # lower case
    sa.Column("kind", sa.String(12), nullable=False),  # user, organization
    sa.Column("email", sa.String(320)),
    sa.Column("issuer", sa.String(400)),  # of the OpenID provider, and the user's id there
    sa.Column("subject", sa.String(255)),
    sa.Column("operator", sa.Boolean, nullable=False, default=False),  # runs the hub
    sa.Column("disabled", sa.Boolean, nullable=False, default=False),
    sa.Column("created", Time, nullable=False),
    # Bytes of all repositories: stored, promised to uploads, and allowed.
    sa.Column("used", sa.BigInteger, nullable=False, default=0),
    sa.Column("reserved", sa.BigInteger, nullable=False, default=0),
    sa.Column("quota", sa.BigInteger),
    sa.UniqueConstraint("issuer", "subject"),
)

repository = sa.Table(
    "repository",
    metadata,
    _key(),
    sa.Column("namespace_id", Key, sa.ForeignKey("account.id"), nullable=False),
    sa.Column("name", sa.String(64), nullable=False),  # lower case
    sa.Column("visibility", sa.String(8), nullable=False),  # public, private
    sa.Column("description", sa.Text, nullable=False, default=""),
    sa.Column("uuid", Hash, nullable=False, unique=True),  # also the prefix of its objects
    sa.Column("record", sa.Text, nullable=False),  # its dlv-remote.json
    sa.Column("created", Time, nullable=False),
    sa.Column("changed", Time, nullable=False),  # when the last ref was written
    # How often its cards were changed, so that copies of them can be brought up to date.
    sa.Column("cards", sa.BigInteger, nullable=False, default=0),
    sa.UniqueConstraint("namespace_id", "name"),
)

# The role of a user in all repositories of a namespace, or in one (else repository_id is null).
member = sa.Table(
    "member",
    metadata,
    _key(),
    sa.Column("namespace_id", Key, sa.ForeignKey("account.id"), nullable=False),
    sa.Column("repository_id", Key, sa.ForeignKey("repository.id", ondelete="CASCADE")),
    sa.Column("user_id", Key, sa.ForeignKey("account.id"), nullable=False),
    sa.Column("role", sa.String(12), nullable=False),
    sa.Column("created", Time, nullable=False),
    sa.Index("member_user", "user_id", "namespace_id"),
)

token = sa.Table(
    "token",
    metadata,
    _key(),
    sa.Column("user_id", Key, sa.ForeignKey("account.id"), nullable=False),
    sa.Column("kind", sa.String(8), nullable=False),  # token, session
    sa.Column("hash", Hash, nullable=False, unique=True),
    sa.Column("hint", sa.String(8), nullable=False),  # its first characters, to tell tokens apart
    sa.Column("name", sa.String(100), nullable=False),
    sa.Column("namespace", sa.String(64)),  # scope: only this namespace
    sa.Column("repository", sa.String(64)),  # and only this repository
    sa.Column("role", sa.String(12), nullable=False),  # the highest
    sa.Column("created", Time, nullable=False),
    sa.Column("expires", Time, nullable=False),
    sa.Column("revoked", Time),
    sa.Column("used", Time),
    sa.Index("token_user", "user_id"),
)

# A login that was begun: by `dlv login` (`device`), or by a browser at the OpenID provider.
login = sa.Table(
    "login",
    metadata,
    _key(),
    sa.Column("device", Hash, unique=True),  # hash of the secret that `dlv login` keeps
    sa.Column("code", sa.String(12), unique=True),  # what a person compares
    sa.Column("user_id", Key, sa.ForeignKey("account.id")),  # who has confirmed it
    sa.Column("role", sa.String(12), nullable=False),
    sa.Column("until", Time),  # when the token ends at the latest
    sa.Column("expires", Time, nullable=False),
)

object_ = sa.Table(
    "object",
    metadata,
    _repository(primary_key=True),
    sa.Column("kind", sa.String(10), primary_key=True),  # packs, manifests, locators, facts
    sa.Column("hash", Hash, primary_key=True),
    sa.Column("size", sa.BigInteger, nullable=False),
    sa.Column("touched", Time, nullable=False),  # when it was sent, or asked for by a publisher
    sa.Column("deleting", sa.Boolean, nullable=False, default=False),
)

# Bytes that are on their way, and what they reserve of the quota.
upload = sa.Table(
    "upload",
    metadata,
    _repository(primary_key=True),
    sa.Column("kind", sa.String(10), primary_key=True),
    sa.Column("hash", Hash, primary_key=True),
    sa.Column("size", sa.BigInteger, nullable=False),
    sa.Column("offset", sa.BigInteger, nullable=False, default=0),
    sa.Column("user_id", Key, sa.ForeignKey("account.id"), nullable=False),
    sa.Column("nonce", sa.String(32), nullable=False),  # names its parts in the store
    sa.Column("expires", Time, nullable=False),
    sa.Index("upload_expires", "expires"),
)

ref = sa.Table(
    "ref",
    metadata,
    _repository(primary_key=True),
    sa.Column("name", sa.String(128), primary_key=True),
    sa.Column("seq", sa.BigInteger, primary_key=True),
    sa.Column("kind", sa.String(10), nullable=False),
    sa.Column("number", sa.BigInteger, nullable=False),
    sa.Column("manifest", Hash, nullable=False),
    sa.Column("locator", Hash, nullable=False),
    sa.Column("hash", Hash, nullable=False),
    sa.Column("record", sa.LargeBinary, nullable=False),
    sa.Column("user_id", Key, sa.ForeignKey("account.id")),
    sa.Column("created", Time, nullable=False),
)

# What the newest locator of a published version needs; gone when the version is retired.
need = sa.Table(
    "need",
    metadata,
    _repository(primary_key=True),
    sa.Column("manifest", Hash, primary_key=True),
    sa.Column("name", sa.String(128), primary_key=True),
    sa.Column("kind", sa.String(10), primary_key=True),
    sa.Column("hash", Hash, primary_key=True),
    sa.Index("need_object", "repository_id", "kind", "hash"),
)

alias = sa.Table(
    "alias",
    metadata,
    _repository(primary_key=True),
    sa.Column("name", sa.String(128), primary_key=True),  # of the model
    sa.Column("alias", sa.String(64), primary_key=True),  # production, staging
    sa.Column("number", sa.BigInteger, nullable=False),
    sa.Column("manifest", Hash, nullable=False),
    sa.Column("changed", Time, nullable=False),
    sa.Column("user_id", Key, sa.ForeignKey("account.id")),
)

lease = sa.Table(
    "lease",
    metadata,
    _repository(primary_key=True),
    sa.Column("lease", sa.String(64), primary_key=True),
    sa.Column("user_id", Key, sa.ForeignKey("account.id"), nullable=False),
    sa.Column("expires", Time, nullable=False),
)

# Written once, in order; each line has the hash of the one before it.
audit = sa.Table(
    "audit",
    metadata,
    sa.Column("seq", sa.BigInteger, primary_key=True, autoincrement=False),
    sa.Column("time", Time, nullable=False),
    sa.Column("actor", sa.String(64), nullable=False),  # a user, or "-" for the shell
    sa.Column("origin", sa.String(64), nullable=False),  # the address of the client
    sa.Column("action", sa.String(40), nullable=False),  # such as ref.publish, token.create
    sa.Column("target", sa.String(400), nullable=False),  # such as acme/vision:lenet@3
    sa.Column("before", sa.String(200)),
    sa.Column("after", sa.String(200)),
    sa.Column("prev", Hash, nullable=False),
    sa.Column("hash", Hash, nullable=False),
    sa.Index("audit_target", "target"),
)

# Cards are derived from refs, manifests and packs: `dlv hub check --rebuild` makes them again.
# Text that is compared or sorted is compared byte by byte, by all databases in the same way.
card = sa.Table(
    "card",
    metadata,
    _key(),  # newer versions have higher ones
    _repository(),
    sa.Column("manifest", Hash, nullable=False),
    sa.Column("locator", Hash, nullable=False),  # that of which it was made
    sa.Column("whole", sa.Boolean, nullable=False),  # false: only what the manifest says
    sa.Column("name", _plain(128), nullable=False),
    sa.Column("number", sa.BigInteger, nullable=False),
    sa.Column("created", Time, nullable=False),
    sa.Column("bytes", sa.BigInteger, nullable=False),
    sa.Column("parameters", sa.BigInteger, nullable=False),
    sa.Column("network", Hash),
    sa.UniqueConstraint("repository_id", "name", "manifest"),
    sa.Index("card_manifest", "manifest"),
    sa.Index("card_repository", "repository_id", "id"),
    sa.Index("card_model", "repository_id", "name", "number"),
    sqlite_autoincrement=True,
)

# dlv.hub.server.card_index searches `words`, and the figures and layers below, in memory.
card_text = sa.Table(
    "card_text",
    metadata,
    sa.Column(
        "card_id",
        Key,
        sa.ForeignKey("card.id", ondelete="CASCADE"),
        primary_key=True,
        autoincrement=False,
    ),
    sa.Column("ranked", sa.Text, nullable=False),  # words of fields, as dlv.hub.server.words writes
    sa.Column("words", sa.Text, nullable=False),  # all of them, between blanks
    sa.Column("record", sa.Text, nullable=False),  # as dlv.hub.index.record_of has it
)

# Several runs of a version can have a metric of one name.
card_figure = sa.Table(
    "card_figure",
    metadata,
    sa.Column("card_id", Key, sa.ForeignKey("card.id", ondelete="CASCADE"), primary_key=True),
    sa.Column("name", _plain(200), primary_key=True),
    sa.Column("kind", sa.String(8), primary_key=True),  # last, min, max; setting
    sa.Column("value", sa.Double, primary_key=True),
    sqlite_with_rowid=False,
)

# Networks, which many cards share, with the names and operations of their layers in lower case.
network = sa.Table(
    "network",
    metadata,
    sa.Column("hash", Hash, primary_key=True),
    sa.Column("record", sa.LargeBinary, nullable=False),  # its canonical form, compressed
)

network_layer = sa.Table(
    "network_layer",
    metadata,
    sa.Column("network", Hash, primary_key=True),
    sa.Column("layer", _plain(200), primary_key=True),
    sqlite_with_rowid=False,
)
