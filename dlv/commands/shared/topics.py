"""What `dlv help TOPIC` prints: things that several commands share."""

from __future__ import annotations

from dlv.commands.shared.options import EXITS

TOPICS: dict[str, str] = {
    "references": """\
A reference names a version, a checkpoint or a file:

  lenet@3               version 3 of the model lenet
  lenet, lenet@latest   its newest version (quantized copies do not count)
  lenet@best:test/loss  its best version by a metric; add :min or :max to say what is better
  HEAD                  the version in the working directory
  paper-final           a tag
  1a2b3c4               an id, or its first 4 or more digits
  REF~2, REF^2          the parent's parent; the second parent
  REF/1000              the checkpoint at step 1000
  REF:train.py          a file of the version

Quote ^ and ~ if your shell expands them.
""",
    "query": """\
DQL in one screen; the full reference is docs/query-reference.md.

  select m where m["test/accuracy"] > 0.9 and m.lr < 0.01
  select m.name, m["loss"].min as best order by best limit 3
  select a, b where b child_of a and b["loss"] < a["loss"]
  select m where m["conv*"].next has RELU
  slice s from m where m.name = "lenet" mutate s.input = m["conv1"], s.output = m["fc1"]
  construct d from m where m.name = "lenet" mutate m["conv1"].out = 16 into "wide"
  evaluate m from m where m.name = "lenet" with config = "base.toml"
    vary config.base_lr in [0.1, 0.01] keep top(1, m["loss"], 100) into "tuned"
  define good as select m where m["test/accuracy"] > $least

m is a version. m["NAME"] is a metric, or with a pattern its layers; m.KEY a hyperparameter.
$K is a variable: dlv query good -P least=0.9
""",
    "exit-codes": "".join(f"  {code:<5}{text}\n" for code, text in sorted(EXITS.items())),
    "environment": """\
  DLV_DIR          the repository to use instead of searching for .dlv
  DLV_TABLE_KEY    a config key, such as DLV_CORE_JOBS=4
  DLV_HUB_DATA     the folder of a hub, for dlv hub
  DLV_HUB_DATABASE the address of its database; PGPASSWORD has the password
  DLV_PAGER        the pager; then core.pager, PAGER, less
  EDITOR           the editor for commit messages
  NO_COLOR         do not color the output
  FORCE_COLOR      color the output in pipes, too
""",
}
