"""The model of `credit-risk.yaml`: a small network that is trained in seconds on the train split."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

    import torch

    from quant.data.samples import Samples

_SEED = 0
_BATCH = 256
_LEARNING_RATE = 1e-3
_WEIGHT_DECAY = 1e-4
_DROPOUT = 0.2


def build(train: Samples, *, hidden: Sequence[int] = (256, 128, 64), epochs: int = 10) -> torch.nn.Module:
    """A network that gives the probability of default, trained on `train`.

    The same samples give the same weights, bit for bit, whatever the number of cores: everything runs in one thread, from
    one seed.

    Args:
        train: Samples with one feed, `features` (a float32 vector), and the label 0 or 1. The recipe's evaluation samples
            are not among them.
        hidden: Widths of the hidden layers.
        epochs: Passes over `train`.
    """
    import torch  # noqa: PLC0415 - heavy

    samples = list(train)
    features = torch.from_numpy(np.stack([sample.feeds[0]["features"] for sample in samples]))
    labels = torch.from_numpy(np.asarray([sample.label for sample in samples], np.float32))
    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # a sum over several threads depends on how many there are
    try:
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(_SEED)
            layers = _layers(features.shape[1], hidden)
            _fit(layers, features, labels, epochs)
    finally:
        torch.set_num_threads(threads)
    return _named(layers)


def _layers(width: int, hidden: Sequence[int]) -> torch.nn.Sequential:
    from torch import nn  # noqa: PLC0415 - heavy

    layers: list[nn.Module] = []
    for size in hidden:
        layers += [nn.Linear(width, size), nn.ReLU(), nn.Dropout(_DROPOUT)]
        width = size
    return nn.Sequential(*layers, nn.Linear(width, 1))


def _fit(layers: torch.nn.Sequential, features: torch.Tensor, labels: torch.Tensor, epochs: int) -> None:
    """AdamW on the cross-entropy, the learning rate falling along a half cosine."""
    import torch  # noqa: PLC0415 - heavy

    order = torch.Generator().manual_seed(_SEED)
    optimizer = torch.optim.AdamW(layers.parameters(), lr=_LEARNING_RATE, weight_decay=_WEIGHT_DECAY)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, epochs * -(-len(labels) // _BATCH))
    layers.train()
    for _ in range(epochs):
        for rows in torch.split(torch.randperm(len(labels), generator=order), _BATCH):
            optimizer.zero_grad()
            loss = torch.nn.functional.binary_cross_entropy_with_logits(layers(features[rows]).squeeze(1), labels[rows])
            loss.backward()  # type: ignore[no-untyped-call]  # torch's own signature
            optimizer.step()
            schedule.step()
    layers.eval()


def _named(layers: torch.nn.Sequential) -> torch.nn.Module:
    """The network with names for its input (`features`) and its output (`probability`)."""
    import torch  # noqa: PLC0415 - heavy

    class CreditRisk(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layers = layers

        def forward(self, features: torch.Tensor) -> dict[str, torch.Tensor]:
            return {"probability": torch.sigmoid(self.layers(features)).squeeze(1)}

    return CreditRisk()
