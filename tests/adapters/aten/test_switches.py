"""Models of Hugging Face as their users have them: no switch has to be known to get a network."""

from __future__ import annotations

from typing import Any

import pytest

torch: Any = pytest.importorskip("torch")
transformers: Any = pytest.importorskip("transformers")
live: Any = pytest.importorskip("dlv.adapters.aten.live")

TOKENS = {"input_ids": [[5, 6, 7, 8, 9], [9, 8, 7, 6, 5]]}


@pytest.fixture
def gpt2() -> Any:
    torch.manual_seed(0)
    config = transformers.GPT2Config(
        vocab_size=20, n_embd=16, n_layer=2, n_head=2, bos_token_id=1, eos_token_id=2
    )
    return transformers.GPT2LMHeadModel(config)


def example() -> dict[str, Any]:
    return {name: torch.tensor(value) for name, value in TOKENS.items()}


def test_a_model_of_text_comes_with_its_network(gpt2: Any) -> None:
    found = live.trace(gpt2, example())
    assert len(found.network.outputs) == 1
    assert any("use_cache=False" in note for note in found.notes)
    assert gpt2.config.use_cache is True


def test_whoever_names_the_switch_is_not_told_of_it(gpt2: Any) -> None:
    found = live.trace(gpt2, example(), {"use_cache": False})
    assert not any("use_cache" in note for note in found.notes)
    assert gpt2.config.use_cache is True


def test_experts_are_multiplied_by_what_every_engine_knows() -> None:
    torch.manual_seed(0)
    config = transformers.MixtralConfig(
        vocab_size=20,
        hidden_size=16,
        intermediate_size=32,
        num_hidden_layers=1,
        num_attention_heads=2,
        num_key_value_heads=2,
        num_local_experts=4,
    )
    module = transformers.MixtralForCausalLM(config)
    before = module.config._experts_implementation
    found = live.trace(module, example())
    foreign = [
        node.source["op"]
        for node in found.network.nodes
        if node.op == "OP" and not node.source["op"].startswith("aten.")
    ]
    assert foreign == []
    assert any("experts_implementation" in note for note in found.notes)
    assert module.config._experts_implementation == before
