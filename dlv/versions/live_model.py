"""A torch module at hand: its weights by name, and its network where torch.export can tell it."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING, Any

from dlv.errors import DlvError, UsageError

if TYPE_CHECKING:
    from dlv.adapters.checkpoint import Checkpoint


def weights_of(model: Any) -> dict[str, Any]:
    """The tensors of its state dict, in its order, without what parallel training puts before."""
    state_dict = getattr(unwrapped(model), "state_dict", None)
    if not callable(state_dict):
        raise UsageError(f"{type(model).__name__} is no torch module", why="it has no state_dict()")
    # Modules may keep other things beside tensors.
    return {name: value for name, value in state_dict().items() if hasattr(value, "detach")}


def network_of(model: Any, example: Any) -> Checkpoint | None:
    """Its network and constants; None, and a warning that says why, where there is none to get.

    What goes wrong here is no reason to lose the weights.
    """
    try:
        import dlv.adapters.aten.live as torch_export

        return torch_export.trace(model, example)
    except DlvError as error:
        why = error.message if error.why is None else f"{error.message} ({error.why})"
    except Exception as error:  # the model's own code is run
        why = f"{type(error).__name__}: {error}"
    warnings.warn(
        f"{type(model).__name__} is kept without its network: {why}", UserWarning, stacklevel=4
    )
    return None


def unwrapped(model: Any) -> Any:
    """Without the wrappers of torch.compile and of data-parallel training, whose names differ."""
    for _ in range(8):
        if type(model).__name__ in ("DataParallel", "DistributedDataParallel"):
            model = model.module
        elif hasattr(model, "_orig_mod"):
            model = model._orig_mod
        else:
            break
    return model
