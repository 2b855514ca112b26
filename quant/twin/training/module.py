"""A quantized model as a torch module, for a training loop of the user's own."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from quant.core.documents import Artifact
from quant.twin.training.trainable import Trainable


class QatModule(torch.nn.Module):
    """A model with quantizers at exactly the tensors where the target's graph has them.

    Call it with the model's inputs, in order or by name; it gives the only output, or a mapping of outputs by name. Train what
    `parameter_groups` gives, with any loop; `state_dict` and `load_state_dict` keep its state. Batch normalization is folded and
    dropout is gone, so `train()` and `eval()` change nothing.

    Args:
        trainable: The graph.
        finish: Writes the graph, as it is when called, as a target's artifact into a folder.

    Attributes:
        inputs: Names of the inputs, in order.
        outputs: Names of the outputs, in order.
    """

    def __init__(self, trainable: Trainable, finish: Callable[[Path], Artifact]) -> None:
        super().__init__()
        self.graph = trainable.twin.module
        self.inputs, self.outputs = trainable.twin.inputs, trainable.twin.outputs
        self._groups = (list(trainable.weights.values()), trainable.scales)
        self.finish = finish

    def parameter_groups(self, *, learning_rate: float = 1e-4, scale_learning_rate: float = 5e-3, weight_decay: float = 0.0) -> list[dict[str, Any]]:
        """What to give an optimizer: weights and biases, and the logarithms of scales, each with their learning rate."""
        groups = ({"lr": learning_rate, "weight_decay": weight_decay}, {"lr": scale_learning_rate, "weight_decay": 0.0})
        return [{"params": parameters, **how} for parameters, how in zip(self._groups, groups, strict=True) if parameters]

    def forward(self, *inputs: torch.Tensor, **named: torch.Tensor) -> Any:
        """The only output, or outputs by name."""
        given = dict(zip(self.inputs, inputs, strict=False)) | named
        if len(inputs) > len(self.inputs) or set(given) != set(self.inputs) or len(given) != len(inputs) + len(named):
            raise TypeError(f"takes the inputs {', '.join(self.inputs)}, each once")
        found = self.graph(*(given[name] for name in self.inputs))
        return found[0] if len(self.outputs) == 1 else dict(zip(self.outputs, found, strict=True))
