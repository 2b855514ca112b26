"""What training needs to go on where a killed process stopped: the same bytes come out as if it had not stopped."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save

from quant.core.files import write_bytes
from quant.twin.training.material import Epoch

_FILE = "checkpoint.safetensors"
_KEY = "training"


@dataclass
class State:
    """Where training stands.

    Args:
        parameters: What is trained, in order.
        optimizer: Its optimizer.
        epochs: What was found so far; the first entry is the state before training.
        best: The parameters of the epoch that is kept.
        kept: Number of that epoch.
    """

    parameters: Sequence[torch.nn.Parameter]
    optimizer: torch.optim.Optimizer
    epochs: list[Epoch] = field(default_factory=list)
    best: list[torch.Tensor] = field(default_factory=list)
    kept: int = 0

    def keep(self) -> None:
        """Take the parameters as they are now for the best."""
        self.best = [parameter.detach().clone() for parameter in self.parameters]
        self.kept = len(self.epochs) - 1

    def take_best(self) -> None:
        """Set the parameters to the best."""
        with torch.no_grad():
            for parameter, best in zip(self.parameters, self.best, strict=True):
                parameter.copy_(best)


def save_state(state: State, folder: Path | None) -> None:
    """Write `state` into `folder`, whole or not at all; nothing happens without a folder."""
    if folder is None:
        return
    tensors: dict[str, torch.Tensor] = {}
    for number, parameter in enumerate(state.parameters):
        tensors[f"now.{number}"] = parameter.detach()
        tensors[f"best.{number}"] = state.best[number]
        for name, value in state.optimizer.state.get(parameter, {}).items():
            tensors[f"optimizer.{number}.{name}"] = value if isinstance(value, torch.Tensor) else torch.tensor(value)
    told = json.dumps({"kept": state.kept, "epochs": [epoch.model_dump() for epoch in state.epochs]})
    write_bytes(folder / _FILE, save({name: tensor.contiguous().clone() for name, tensor in tensors.items()}, {_KEY: told}))


def load_state(state: State, folder: Path | None) -> bool:
    """Bring `state` to where `save_state` left it; gives whether there was anything to go on from."""
    path = None if folder is None else folder / _FILE
    if path is None or not path.is_file():
        return False
    try:
        with safe_open(path, framework="pt") as file:
            told: Mapping[str, Any] = json.loads(file.metadata()[_KEY])
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 - it is no mapping
    except SafetensorError:  # a disk that failed: training starts anew
        return False
    with torch.no_grad():
        for number, parameter in enumerate(state.parameters):
            parameter.copy_(tensors[f"now.{number}"])
            prefix = f"optimizer.{number}."
            found = {name.removeprefix(prefix): tensor for name, tensor in tensors.items() if name.startswith(prefix)}
            if found:
                state.optimizer.state[parameter] = found
    state.best = [tensors[f"best.{number}"] for number in range(len(state.parameters))]
    state.kept = told["kept"]
    state.epochs = [Epoch.model_validate(epoch) for epoch in told["epochs"]]
    return True
