"""Build a repository from examples/ with the real commands, and show what they print.

    python examples/demo.py FOLDER

FOLDER must not exist. Needs dlv and its few dependencies, nothing else: no torch.
"""

import datetime
import os
import pty
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

DIGITS = Path(__file__).resolve().parent / "digits"
ALEXNET = Path(__file__).resolve().parent / "alexnet"
WIDTH = 100

# Comments are shown as they stand; {digits} and {alexnet} are where the examples' files are.
STEPS = """
# Create a repository in the project folder.
dlv init
# Add a network, six checkpoints, the training log, hyperparameters, the script and test data.
cp {digits}/train.py {digits}/test.npz {digits}/base/* .
dlv add .
dlv commit -m 'LeNet on digits' --name lenet
dlv tag baseline

# Fine-tune the last layer only. The other tensors are stored already.
rm step-*; cp {digits}/head/* .
dlv add .
dlv commit -m 'Only the last layer trained on'

# Start a new model from a copy: five labels instead of ten.
dlv copy lenet@1 lenet-five
rm step-*; cp {digits}/five/* .
dlv status
dlv add .
dlv commit -m 'Digits 0 to 4'

# Another seed and optimizer. The checkpoints are .pt files with optimizer state.
dlv copy lenet@1 lenet-adam --no-weights
rm config.toml log.csv; cp {digits}/reseed/* .
dlv add --remove config.toml log.csv
dlv add .
dlv commit -m 'Another seed, AdamW'

# List versions, and their lineage.
dlv list
dlv log --graph --all
# Describe one version.
dlv desc lenet-five
# See what the fine-tunes changed.
dlv diff lenet@1 lenet@2
dlv diff lenet@1 lenet-five --network --tensors --params
dlv metrics lenet@1 lenet@2
# See how much space versions take, and store similar tensors as deltas.
dlv stats
dlv archive

# Evaluate versions and checkpoints on the test data.
dlv eval lenet@1/100 lenet@1 lenet@2 lenet-adam test.npz
dlv eval lenet@2 --confusion --no-save
dlv list --columns version,test/accuracy,message

# Publish one checkpoint in its own repository. With --bounds, `eval --progressive` reads only the
# first byte planes of the weights, as many as prove the labels of the full evaluation.
mkdir served; cp test.npz network.json {digits}/base/step-600.* served
dlv init served
dlv -C served add .
dlv -C served commit -m 'LeNet on digits' --name lenet --bounds
dlv -C served eval lenet --progressive

# Check out two versions next to the project: every byte is what was added.
dlv checkout lenet@1 --to first
dlv checkout lenet-adam --to adam
(cd {digits}/base && sha256sum step-*) | (cd first && sha256sum -c)
(cd {digits}/reseed && sha256sum step-*) | (cd adam && sha256sum -c)

# Add two untrained networks of another family.
cp {alexnet}/origin/* .
dlv add network.json weights.npz
dlv commit -m 'AlexNet, small, MAX pooling' --name alexnet-origin --orphan
cp {alexnet}/avgv1/* .
dlv add network.json weights.npz
dlv commit -m 'AVG pooling, and no RELU beside it' --name alexnet-avgv1

# Find models with a convolution before MAX pooling, and versions better than their parent.
dlv query 'select m where m["conv[1,3,5]"].next has POOL("MAX")'
dlv query 'select a, b, b["loss"] where b child_of a and b["loss"] < a["loss"]'
# Cut a network between two layers. Insert a layer behind each convolution.
dlv query 'slice s from m where m.name like "alexnet-origin%"
  mutate s.input = m["conv1"] and s.output = m["fc7"]'
dlv query 'construct d from m where m.name like "alexnet-avgv1%"
  and m["conv*($1)"].next has POOL("AVG")
  mutate m["conv*($1)"].insert = RELU("relu$1")'

dlv fsck
"""


def main(folder: Path) -> int:
    if folder.exists():
        sys.exit(f"{folder} already exists")
    folder.mkdir(parents=True)
    digits, alexnet = (os.path.relpath(path, folder) for path in (DIGITS, ALEXNET))
    with tempfile.TemporaryDirectory() as tools:
        program = Path(tools, "dlv")
        program.write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} -m dlv "$@"\n')
        program.chmod(0o755)
        environ = {**os.environ, "PATH": f"{tools}:{os.environ['PATH']}", "DLV_PAGER": "cat"}
        environ["DLV_CORE_HINTS"] = "false"  # the next step is on the next line
        # A clock that stands still would make all versions equally old.
        moment = environ.get("DLV_NOW")
        # A line that begins with blanks goes on with the one before it.
        for step in re.split(r"\n(?!  )", STEPS.strip("\n")):
            line = step.format(digits=digits, alexnet=alexnet)
            if line.startswith("#") or not line:
                show(line, "36")
                continue
            if moment:
                later = datetime.datetime.fromisoformat(moment) + datetime.timedelta(minutes=1)
                moment = environ["DLV_NOW"] = later.isoformat()
            show(f"$ {line}", "1")
            code = run(line, folder, environ)
            if code != 0:
                print(f"exit {code}")
                return code
    show(f"\nThe repository is in {os.path.relpath(folder)}. Try: dlv show lenet@2", "36")
    return 0


def show(text: str, style: str) -> None:
    coloured = sys.stdout.isatty() and not os.environ.get("NO_COLOR")
    print(f"\x1b[{style}m{text}\x1b[0m" if coloured and text else text, flush=True)


def run(line: str, folder: Path, environ: dict[str, str]) -> int:
    """Run a line as if it had been typed: dlv prints its tables for people only to a terminal."""
    if sys.stdout.isatty():
        return subprocess.run(line, shell=True, cwd=folder, env=environ, check=False).returncode
    parent, child = pty.openpty()
    environ = {**environ, "NO_COLOR": "1", "COLUMNS": str(WIDTH)}
    # No terminal for messages, so that no progress bar gets between the lines.
    process = subprocess.Popen(
        line, shell=True, cwd=folder, env=environ, stdin=child, stdout=child, stderr=subprocess.PIPE
    )
    os.close(child)
    printed = b"".join(iter(lambda: read(parent), b""))
    os.close(parent)
    _, told = process.communicate()
    text = (told + printed).decode("utf-8", "replace").replace("\r\n", "\n")
    print(text, end="", flush=True)
    return process.returncode


def read(terminal: int) -> bytes:
    try:
        return os.read(terminal, 65536)
    except OSError:  # Linux says so when the other side is closed
        return b""


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit("usage: python examples/demo.py FOLDER")
    if not shutil.which("sh"):
        sys.exit("a shell is needed")
    sys.exit(main(Path(sys.argv[1]).absolute()))
