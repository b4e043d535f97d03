"""Train a small convolutional network on scikit-learn's handwritten digits (8 x 8 pixels).

    python train.py [FOLDER]

FOLDER holds config.toml or config.json. Written there: the checkpoints, a metrics log and
network.json; beside this script: test.npz. Run twice on one machine, it writes the same files.
Needs torch, safetensors and scikit-learn; nothing in here knows of dlv.
"""

import csv
import json
import sys
import tomllib
from pathlib import Path

import numpy as np
import torch
from safetensors.torch import load_file, save_file
from sklearn.datasets import load_digits
from torch import nn


class Net(nn.Module):
    def __init__(self, labels):
        super().__init__()
        self.conv1 = nn.Conv2d(1, 16, 3, padding=1)
        self.conv2 = nn.Conv2d(16, 32, 3, padding=1)
        self.fc1 = nn.Linear(32 * 2 * 2, 64)
        self.fc2 = nn.Linear(64, labels)

    def forward(self, x):
        x = torch.max_pool2d(torch.relu(self.conv1(x)), 2)
        x = torch.max_pool2d(torch.relu(self.conv2(x)), 2)
        return self.fc2(torch.relu(self.fc1(x.flatten(1))))


def network(labels):
    """The same network as dlv's network JSON."""
    nodes = []

    def node(name, op, variant=None, params=False, **attrs):
        nodes.append({"name": name, "op": op, "variant": variant, "attrs": attrs})
        nodes[-1]["inputs"] = [nodes[-2]["name"] if len(nodes) > 1 else "x"]
        if params:
            nodes[-1]["params"] = {slot: f"{name}.{slot}" for slot in ("weight", "bias")}

    for number, out in ((1, 16), (2, 32)):
        node(f"conv{number}", "CONV", params=True, out=out, kernel=[3, 3], pad=1)
        node(f"relu{number}", "RELU")
        node(f"pool{number}", "POOL", "MAX", kernel=[2, 2], stride=[2, 2])
    node("flatten", "RESHAPE", kind="flatten")
    node("fc1", "FULL", params=True, out=64)
    node("relu3", "RELU")
    node("fc2", "FULL", params=True, out=labels)
    inputs = [{"name": "x", "shape": ["B", 1, 8, 8], "dtype": "float32"}]
    return {"dlv_network": 1, "inputs": inputs, "nodes": nodes, "outputs": ["fc2"]}


def digits(labels):
    """Training and test images of the first `labels` digits, in a fixed order."""
    x, y = load_digits(return_X_y=True)
    order = np.random.RandomState(0).permutation(len(x))
    x = (x[order] / 16).astype(np.float32).reshape(-1, 1, 8, 8)
    y = y[order].astype(np.int64)
    parts = []
    for part in (slice(360, None), slice(None, 360)):
        kept = y[part] < labels
        parts += [x[part][kept], y[part][kept]]
    return parts


def settings(folder):
    if (folder / "config.json").exists():
        return json.loads((folder / "config.json").read_text())
    return tomllib.loads((folder / "config.toml").read_text())


def start(net, config, folder):
    """Take over the weights of an earlier run, but for what does not fit this one."""
    if "start" not in config:
        return
    own = net.state_dict()
    weights = load_file(folder / config["start"])
    fitting = {name: w for name, w in weights.items() if w.shape == own[name].shape}
    net.load_state_dict(fitting, strict=False)


def optimizer_of(net, config):
    wanted = config.get("train")
    for name, parameter in net.named_parameters():
        parameter.requires_grad = wanted is None or name.split(".")[0] in wanted
    trained = [p for p in net.parameters() if p.requires_grad]
    options = dict(config["optimizer"])
    return getattr(torch.optim, options.pop("name"))(trained, **options)


def save(net, optimizer, step, folder, format_):
    if format_ == "pt":
        state = {"model": net.state_dict(), "optimizer": optimizer.state_dict(), "step": step}
        torch.save(state, folder / f"step-{step}.pt")
    else:
        save_file(net.state_dict(), folder / f"step-{step}.safetensors")


def write_log(rows, folder, format_):
    if format_ == "jsonl":
        lines = (json.dumps({k: v for k, v in row.items() if v is not None}) for row in rows)
        (folder / "log.jsonl").write_text("".join(f"{line}\n" for line in lines))
        return
    with (folder / "log.csv").open("w", newline="") as file:
        writer = csv.DictWriter(file, list(rows[0]), lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)


def train(folder):
    config = settings(folder)
    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(True)
    torch.manual_seed(config["seed"])
    x, y, test_x, test_y = (torch.from_numpy(a) for a in digits(config["labels"]))
    net = Net(config["labels"])
    start(net, config, folder)
    optimizer = optimizer_of(net, config)
    schedule = torch.optim.lr_scheduler.StepLR(optimizer, **config["schedule"])
    order = np.random.RandomState(config["seed"])
    rows, batches = [], []
    for step in range(1, config["steps"] + 1):
        if not batches:
            batches = list(np.array_split(order.permutation(len(x)), len(x) // config["batch"]))
        batch = batches.pop()
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(net(x[batch]), y[batch])
        loss.backward()
        optimizer.step()
        lr = optimizer.param_groups[0]["lr"]
        schedule.step()
        if step % 10 == 0:
            rows.append({"step": step, "loss": round(loss.item(), 6), "accuracy": None, "lr": lr})
        if step % config["checkpoint"] == 0:
            with torch.no_grad():
                hits = (net(test_x).argmax(1) == test_y).float().mean().item()
            rows[-1]["accuracy"] = round(hits, 6)
            save(net, optimizer, step, folder, config.get("format", "safetensors"))
            print(f"{folder.name}: step {step}, loss {loss.item():.4f}, accuracy {hits:.4f}")
    write_log(rows, folder, config.get("log", "csv"))
    text = json.dumps(network(config["labels"]), indent=1)
    (folder / "network.json").write_text(text + "\n")


if __name__ == "__main__":
    train(Path(sys.argv[1] if len(sys.argv) > 1 else ".").resolve())
    _, _, x, y = digits(10)
    np.savez_compressed(Path(__file__).resolve().parent / "test.npz", x=x, y=y)
