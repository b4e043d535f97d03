"""A transformer in ball arithmetic: what its whole weights compute is in every ball.

As whole weights serve those of a model, and others with the same first bits: random ones, and
the worst that a gradient finds. Norms are those that a writer would have stored of them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from dlv.network.bounds.ball import F64, STRICT, Norms, Reference
from dlv.network.bounds.interval import Balls, certain
from dlv.network.program import Program, program

torch: Any = pytest.importorskip("torch", reason="torch is the oracle here")
nn: Any = torch.nn
traces: Any = pytest.importorskip("tests.zoo.traced")

Array = NDArray[Any]


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


class Block(nn.Module):  # type: ignore[misc]  # torch has no types here
    def __init__(self, width: int, heads: int, inner: int) -> None:
        super().__init__()
        self.heads = heads
        self.q, self.k, self.v, self.o = (nn.Linear(width, width) for _ in range(4))
        self.n1, self.n2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.a, self.b = nn.Linear(width, inner), nn.Linear(inner, width)

    def forward(self, x: Any) -> Any:
        batch, length, width = x.shape

        def split(part: Any) -> Any:
            return part.view(batch, length, self.heads, width // self.heads).transpose(1, 2)

        mixed = nn.functional.scaled_dot_product_attention(
            split(self.q(x)), split(self.k(x)), split(self.v(x))
        )
        x = self.n1(x + self.o(mixed.transpose(1, 2).reshape(batch, length, width)))
        return self.n2(x + self.b(torch.relu(self.a(x))))


class Encoder(nn.Module):  # type: ignore[misc]
    """16 tokens of 4 numbers each."""

    def __init__(self, width: int, heads: int, inner: int, blocks: int) -> None:
        super().__init__()
        self.e = nn.Linear(4, width)
        self.pos = nn.Parameter(torch.randn(1, 16, width) * 0.1)
        self.blocks = nn.ModuleList(Block(width, heads, inner) for _ in range(blocks))
        self.c = nn.Linear(width, 10)

    def forward(self, x: Any) -> Any:
        x = self.e(x) + self.pos
        for block in self.blocks:
            x = block(x)
        return self.c(x.mean(1))


class Part:
    """A model of whose weights only the first bits are read."""

    def __init__(self, module: Any, bits: Mapping[str, int]) -> None:
        self.traced = traces.trace(module.train(), (torch.zeros(2, 16, 4),))
        self.module = module.double().eval()
        network = self.traced.network
        self.program: Program = program(
            network,
            self.traced.tensors,
            until=[n.name for n in network.nodes if n.op in ("FULL", "NORM", "ATTENTION")],
        )
        state = self.module.state_dict().items()
        self.whole = {name: tensor.detach().numpy().astype(float) for name, tensor in state}
        self.centres = dict(self.whole)
        self.cells: dict[str, Array] = {}
        read = total = 0
        for step in self.program.linear:
            name = step.node.params["weight"]
            weight = self.whole[name]
            read, total = read + min(bits[name], 32) * weight.size, total + 32 * weight.size
            if bits[name] < 32:
                top = np.ceil(np.log2(np.abs(weight).max(axis=1, keepdims=True) * (1 + 1e-12)))
                cell = 2.0 ** (top - (bits[name] - 1))
                self.centres[name] = (
                    np.sign(weight) * (np.floor(np.abs(weight) / cell) + 0.5) * cell
                )
                self.cells[name] = np.broadcast_to(cell, weight.shape)
        self.share = read / total

    def norms(self, weights: Mapping[str, Array]) -> dict[str, Norms]:
        up, found = 1 + 1e-7, {}
        for step in self.program.linear:
            name = step.node.params["weight"]
            weight = weights[name]
            unread = weight - self.centres[name]
            found[step.node.name] = Norms(
                opn=float(np.linalg.norm(weight, 2)) * up,
                fro=float(np.linalg.norm(weight)) * up,
                absmax=float(np.abs(weight).max()),
                dn=float(np.linalg.norm(unread, 2)) * up,
                dfro=float(np.linalg.norm(unread)) * up,
                rows=np.linalg.norm(weight, axis=1) * up,
                drows=np.linalg.norm(unread, axis=1) * up,
            )
        return found

    def balls(
        self, x: Array, weights: Mapping[str, Array], reference: Reference = F64
    ) -> tuple[Balls, Any]:
        aliases = self.traced.network.aliases
        found = Balls(
            self.program,
            lambda name: self.centres[aliases.get(name, name)],
            self.norms(weights),
            reference,
        )
        return found, found.balls({self.traced.network.inputs[0].name: x})

    def completed(self, rng: Any, x: Array, *, worst: bool) -> dict[str, Array]:
        """Other weights with the same first bits: random, or each against the label."""
        result = dict(self.whole)
        signs = {name: rng.uniform(-1, 1, cell.shape) for name, cell in self.cells.items()}
        if worst:
            self._load(self.centres)
            scores = self.module(torch.from_numpy(x))
            best = scores.topk(2, dim=1).values
            self.module.zero_grad()
            (best[:, 0] - best[:, 1]).sum().backward()
            for name in signs:
                gradient = self.module.get_parameter(name).grad.numpy()
                signs[name] = -np.sign(gradient)
        for name, cell in self.cells.items():
            result[name] = self.centres[name] + signs[name] * cell * 0.499
        return result

    def _load(self, weights: Mapping[str, Array]) -> None:
        state = {name: torch.from_numpy(np.array(each)) for name, each in weights.items()}
        self.module.load_state_dict(state)

    def values(self, weights: Mapping[str, Array], x: Array) -> tuple[Array, dict[str, Array]]:
        """By torch: the scores, and what every submodule with a weight of its own gave."""
        self._load(weights)
        seen: dict[str, Array] = {}
        hooks = [
            module.register_forward_hook(
                lambda _m, _i, out, name=name: seen.update({name: out.detach().numpy()})
            )
            for name, module in self.module.named_modules()
            if isinstance(module, nn.Linear | nn.LayerNorm)
        ]
        with torch.no_grad():
            scores = self.module(torch.from_numpy(x)).numpy()
        for hook in hooks:
            hook.remove()
        return scores, seen


def held(part: Part, x: Array, trials: int) -> tuple[float, float]:
    """The share of rows that are certain; and the largest share of a radius that was reached."""
    rng = np.random.default_rng(0)
    reached, share = 0.0, 0.0
    for trial in range(trials):
        weights = part.completed(rng, x, worst=trial % 2 == 1) if trial else part.whole
        balls, known = part.balls(x, weights)
        labels, sure = certain(balls, known)
        share = share if trial else float(sure.mean())
        scores, seen = part.values(weights, x)
        assert (scores.argmax(axis=1) == labels)[sure].all()
        for name, value in seen.items():
            ball = known[part.program.kept[name]]
            error = value - ball.centre
            rows = np.sqrt((error * error).sum(axis=tuple(range(1, error.ndim))))
            reached = max(reached, float((rows / ball.radius).max()))
            if ball.tokens is not None:
                tokens = np.sqrt((error * error).sum(axis=-1))
                reached = max(reached, float((tokens / ball.tokens).max()))
    return share, reached


@pytest.mark.parametrize("bits", [10, 16, 24, 32])
def test_completions_stay_in_every_ball(bits: int) -> None:
    torch.manual_seed(1)
    module = Encoder(16, 2, 24, 2)
    names = [name for name, each in module.named_parameters() if each.dim() == 2]
    x = np.random.default_rng(2).normal(size=(12, 16, 4))
    _, reached = held(Part(module, dict.fromkeys(names, bits)), x, 6)
    assert reached <= 1


def test_whole_weights_leave_rounding_alone() -> None:
    torch.manual_seed(1)
    module = Encoder(16, 2, 24, 2)
    part = Part(module, {name: 32 for name, each in module.named_parameters() if each.dim() == 2})
    x = np.random.default_rng(2).normal(size=(6, 16, 4)).astype(np.float32).astype(float)
    for reference, least, dtype in ((F64, 1e-8, torch.float64), (STRICT, 10.0, torch.float32)):
        _, known = part.balls(x, part.whole, reference)
        ball = known[part.program.scores]
        part._load(part.whole)
        with torch.no_grad():
            scores = part.module.to(dtype)(torch.from_numpy(x).to(dtype)).double().numpy()
        part.module.double()
        off = np.sqrt(((scores - ball.centre) ** 2).sum(axis=1))
        assert (off <= ball.radius).all()
        assert ball.radius.max() < least


@pytest.mark.slow
def test_a_trained_encoder_is_certain_from_half_of_its_bytes() -> None:
    """Two blocks on digits: 9 of 10 rows, without a wrong label under any completion."""
    digits = pytest.importorskip("sklearn.datasets", reason="digits to train on").load_digits()
    x = (digits.images / 16).reshape(-1, 4, 2, 4, 2).transpose(0, 1, 3, 2, 4).reshape(-1, 16, 4)
    order = np.random.RandomState(0).permutation(len(x))
    train, test = order[:1257], order[1257:]
    torch.manual_seed(0)
    module = Encoder(64, 4, 128, 2)
    optimizer = torch.optim.AdamW(module.parameters(), 1e-3, weight_decay=0.05)
    given = torch.from_numpy(x.astype(np.float32))
    wanted = torch.from_numpy(digits.target)
    for _ in range(25):
        for rows in torch.from_numpy(train)[torch.randperm(len(train))].split(64):
            loss = nn.functional.cross_entropy(module(given[rows]), wanted[rows])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    names = [name for name, each in module.named_parameters() if each.dim() == 2]
    # Early layers need precision and are small; of late ones one plane is enough.
    planes = {"e": 4, "blocks.0.q": 3, "blocks.0.k": 3, "blocks.0.v": 3}
    planes |= {"blocks.1.o": 1, "blocks.1.a": 1, "blocks.1.b": 1}
    part = Part(module, {name: 8 * planes.get(name.removesuffix(".weight"), 2) for name in names})
    assert part.share <= 0.5
    sure, reached = held(part, x[test].astype(np.float32).astype(float)[:180], 8)
    assert reached <= 1
    assert sure >= 0.9
