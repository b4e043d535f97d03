"""Hugging Face folders: which files are the model, which only go with it, which are copies.

A folder is one if its config.json, or a Trainer's trainer_state.json, and weights under the names
that transformers or diffusers give them lie in it. A pipeline of diffusers has several of them.
Nothing but what `add` should do follows from it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import field
from pathlib import Path

from dlv.adapters import detect, registry
from dlv.adapters.checkpoint import Checkpoint, Tensor
from dlv.adapters.folders import PIPELINE, RANDOM_STATES
from dlv.adapters.source import Source
from dlv.dataclass import dataclass
from dlv.errors import Damaged, DlvError, NotFound, UnsafeInput

CONFIG, STATE, INDEX = "config.json", "trainer_state.json", ".index.json"
_CONFIG_KEY = re.compile(
    rb'"(?:model_type|architectures|transformers_version|_class_name)"\s*:'  # the last: diffusers
)
_SHARD = r"(?:-[0-9]+-of-[0-9]+)?"
_DIFFUSERS = "diffusion_pytorch_model"
_SAFE = re.compile(rf"(?:model|adapter_model|{_DIFFUSERS}){_SHARD}\.safetensors")
_TORCH = re.compile(rf"(?:pytorch_model|adapter_model|{_DIFFUSERS}){_SHARD}\.bin")
_VARIANT = re.compile(
    rf"(?:model|adapter_model|pytorch_model|{_DIFFUSERS})"
    rf"(?:\.[A-Za-z0-9_]+{_SHARD}|{_SHARD}\.[A-Za-z0-9_]+)\.(?:safetensors|bin)"
)
_OTHER_FRAMEWORK = re.compile(
    rf"tf_model{_SHARD}\.h5|flax_model{_SHARD}\.msgpack|rust_model\.ot|model\.ckpt\.[a-z0-9-]+"
)
_PLAIN = (".json", ".txt", ".md", ".model", ".jinja", ".spm", ".vocab", ".tiktoken")
_CHECKPOINT = re.compile(r"checkpoint-([0-9]{1,18})")
_MOST_NAMED = 3


@dataclass(frozen=True)
class Advice:
    """The role of a file, or the reason to skip it; empty: its content decides."""

    role: str | None = None
    skip: str | None = None


@dataclass
class Advised:
    files: dict[Path, Advice] = field(default_factory=dict)
    warnings: list[str] = field(default_factory=list)


def advise(paths: Iterable[Path]) -> Advised:
    """Advice for the files among these that lie in Hugging Face folders."""
    folders: dict[Path, dict[str, Path]] = {}
    for path in paths:
        folders.setdefault(path.parent, {})[path.name] = path
    advised = Advised()
    models = [folder for folder, names in folders.items() if _is_model(names)]
    for folder in models:
        _advise_folder(advised, folders[folder])
    for folder in folders.keys() - set(models):
        _check_parts(folders[folder])
    for folder, names in folders.items():
        if folder.parts[-2:] == (".cache", "huggingface") or ".cache/huggingface/" in str(folder):
            why = "it is a file of the download client"
            advised.files |= {path: Advice(skip=why) for path in names.values()}
    _choose(advised, [folders[folder] for folder in models if not _is_component(folder)])
    for names in folders.values():
        if PIPELINE in names:
            _advise_pipeline(advised, names[PIPELINE], folders)
    return advised


def _is_component(folder: Path) -> bool:
    """Whether it is one of the models of a pipeline, or of a state that accelerate saved."""
    return any((folder.parent / marker).is_file() for marker in (PIPELINE, RANDOM_STATES))


def _advise_pipeline(
    advised: Advised, index: Path, folders: Mapping[Path, Mapping[str, Path]]
) -> None:
    """The index is the configuration; settings of the components are files, as they share keys."""
    from dlv.adapters import settings as settings_files

    root = index.parent
    for folder in (root, *(folder for folder in folders if folder.parent == root)):
        for name, path in folders[folder].items():
            if name.endswith(_PLAIN) and advised.files.get(path, Advice()).skip is None:
                advised.files[path] = Advice("file")
    if _fits(index):
        advised.files[index] = Advice("config")
    for name, value in settings_files.read(str(index), "json").items():
        named = isinstance(value, list) and len(value) == 2 and all(value)
        if named and not name.startswith("_") and root / name not in folders:
            listed = name if name.isidentifier() else repr(name[:100])
            advised.warnings.append(f"no such folder: {listed}, which {index.name} names")


def _check_parts(names: dict[str, Path]) -> None:
    """Parts of weights that lie together with their index are all there, in any folder."""
    from dlv.adapters import settings as settings_files

    for name in sorted(name for name in names if name.endswith(INDEX)):
        try:
            told = settings_files.read(str(names[name]), "json").get("weight_map")
        except DlvError:
            continue
        wanted = set(told.values()) if isinstance(told, dict) else set()
        missing = sorted(part for part in wanted if isinstance(part, str) and part not in names)
        if missing and len(missing) < len(wanted):
            raise _missing(missing[0], names[name])


def _missing(part: str, index: Path) -> NotFound:
    return NotFound(
        f"{part} is missing, and {index.name} names it",
        why=f"in {index.parent}",
        hint="download the model again, or add its files one by one",
    )


def _is_model(names: dict[str, Path]) -> bool:
    if not any(_SAFE.fullmatch(name) or _TORCH.fullmatch(name) for name in names):
        return False
    if STATE in names or "adapter_config.json" in names:
        return True
    if CONFIG not in names:
        return False
    with Source(str(names[CONFIG])) as file:
        return _CONFIG_KEY.search(file.read(0, min(file.size, detect.HEAD_BYTES))) is not None


def _choose(advised: Advised, models: Sequence[dict[str, Path]]) -> None:
    """Keep the settings and logs of a run's newest checkpoint only."""
    for name, role in ((CONFIG, "config"), ("adapter_config.json", "config"), (STATE, "log")):
        newest: dict[Path, tuple[float, Path]] = {}
        for names in models:
            path = names.get(name)
            if path is None or (name == "adapter_config.json" and CONFIG in names):
                continue
            step = _CHECKPOINT.fullmatch(path.parent.name)
            # What lies above the checkpoints was written when all was done.
            age = float(step[1]) if step else float("inf")
            run = path.parent.parent if step else path.parent
            newest[run] = max(newest.get(run, (age, path)), (age, path))
        for _, path in newest.values():
            if role == "config" and not _fits(path):
                warning = f"{path.name} is kept as a file, without hyperparameters"
                advised.warnings.append(f"{warning}: it holds what they cannot be")
                continue
            advised.files[path] = Advice(role)


def _fits(path: Path) -> bool:
    try:
        from dlv.adapters import settings as settings_files

        settings_files.flatten(settings_files.read(str(path), "json"))
    except DlvError:
        return False
    return True


def _advise_folder(advised: Advised, names: dict[str, Path]) -> None:
    files = advised.files
    for name, path in names.items():
        # A network of dlv's own may lie here, too.
        if name.endswith(".json") and detect.detect(str(path)) == "network_json":
            continue
        if name.endswith(_PLAIN):
            files[path] = Advice("file")
    safe = _weights(advised, names, _SAFE, ".safetensors")
    torch = _weights(advised, names, _TORCH, ".bin")
    if safe and torch:
        why = _difference(safe, torch)
        for path in torch:
            files[path] = Advice(skip=why)
    kept = ", ".join(path.name for path in (safe or torch)[:1])
    for name, path in names.items():
        if _OTHER_FRAMEWORK.fullmatch(name):
            files[path] = Advice(skip=f"the model for another framework; using {kept}")
        elif _VARIANT.fullmatch(name) and not (_SAFE.fullmatch(name) or _TORCH.fullmatch(name)):
            files[path] = Advice(skip=f"another variant of the weights; using {kept}")


def _weights(
    advised: Advised, names: dict[str, Path], pattern: re.Pattern[str], suffix: str
) -> list[Path]:
    """The weight files of one kind that transformers would load, checked to be complete."""
    found = {name: path for name, path in names.items() if pattern.fullmatch(name)}
    whole = [path for name, path in found.items() if detect.shard_of(name) is None]
    shards = {name: path for name, path in found.items() if detect.shard_of(name) is not None}
    if whole or not shards:
        for path in shards.values():
            why = f"{whole[0].name} has the weights: transformers loads that, not the parts"
            advised.files[path] = Advice(skip=why)
        return whole
    indices = [name for name in names if name.endswith(suffix + INDEX)]
    index = indices[0] if indices else None
    if index is None:
        _check_numbers(shards)
        return list(shards.values())
    wanted = _check_index(advised, names[index], shards)
    for name, path in shards.items():
        if name not in wanted:
            advised.files[path] = Advice(skip=f"{index} does not name it")
    return [path for name, path in shards.items() if name in wanted]


def _check_numbers(shards: dict[str, Path]) -> None:
    for name, path in shards.items():
        base, _, count = detect.shard_of(name) or ("", 0, 0)
        there = {s[1] for s in map(detect.shard_of, shards) if s and s[::2] == (base, count)}
        missing = sorted(set(range(1, count + 1)) - there)
        if missing:
            raise NotFound(
                f"part {missing[0]} of {count} is missing next to {name}",
                why=f"in {path.parent}",
                hint=f"dlv add {path} takes the parts that are there, one by one",
            )


def _check_index(advised: Advised, index: Path, shards: dict[str, Path]) -> set[str]:
    """The parts that an index names, after every tensor was found where it should be."""
    from dlv.adapters import settings as settings_files

    told = settings_files.read(str(index), "json").get("weight_map")
    if not isinstance(told, dict) or not all(isinstance(name, str) for name in told.values()):
        raise Damaged(f"{index} maps no tensors to files", why="`weight_map` is looked for")
    held: dict[str, set[str]] = {}
    for shard in sorted(set(told.values())):
        if "/" in shard or "\\" in shard or shard in ("", ".", ".."):
            raise UnsafeInput(f"{index} names a file elsewhere", why=repr(shard[:100]))
        path = shards.get(shard)
        if path is None:
            raise _missing(shard, index)
        opened = _open(path)
        held[shard] = {tensor.name for tensor in opened.tensors}
        opened.close()
    for tensor, shard in told.items():
        if tensor not in held[shard]:
            other = next((name for name, tensors in held.items() if tensor in tensors), None)
            raise Damaged(
                f"{shard} has no tensor `{tensor}`, though {index.name} says so",
                why="it is in no part" if other is None else f"it is in {other}",
            )
    extra = sorted({tensor for tensors in held.values() for tensor in tensors} - set(told))
    if extra:
        more = f" and {len(extra) - _MOST_NAMED} more" if len(extra) > _MOST_NAMED else ""
        named = ", ".join(extra[:_MOST_NAMED])
        advised.warnings.append(f"{index.name} does not name {named}{more}")
    return set(told.values())


def _open(path: Path) -> Checkpoint:
    return registry.adapter("safetensors" if path.suffix == ".safetensors" else "pt").open(
        str(path)
    )


def _difference(safe: Sequence[Path], torch: Sequence[Path]) -> str:
    """Why the torch files are left out: they are the same weights once more, or others."""
    opened: list[Checkpoint] = []
    try:
        for path in (*safe, *torch):
            opened.append(_open(path))
        tensors = [tensor for checkpoint in opened[: len(safe)] for tensor in checkpoint.tensors]
        copies = [tensor for checkpoint in opened[len(safe) :] for tensor in checkpoint.tensors]
        found = _unlike({t.name: t for t in tensors}, {t.name: t for t in copies})
    except DlvError as error:
        found = error.message
    finally:
        for checkpoint in opened:
            checkpoint.close()
    kept = safe[0].name
    if found is None:
        return f"the same weights as in {kept}"
    return f"using {kept}; this file differs ({found}), commit it as another version"


def _unlike(tensors: dict[str, Tensor], copies: dict[str, Tensor]) -> str | None:
    """The first difference between two sets of tensors; shared ones may be left out of one."""
    for name, tensor in tensors.items():
        copy = copies.get(name)
        if copy is None:
            return f"{name} is in one of them only"
        if (copy.dtype, copy.shape) != (tensor.dtype, tensor.shape):
            return f"{name} has another form"
        if copy.content_hash() != tensor.content_hash():
            return f"{name} has other values"
    # Of tensors that share their elements safetensors has one, whichever.
    shared = {copy.tied or name for name, copy in copies.items() if name in tensors}
    for name, copy in copies.items():
        if name not in tensors and (copy.tied or name) not in shared:
            return f"{name} is in one of them only"
    return None
