"""The network of `image-imagenet`, and what it takes for weights."""

import os
import re

import pytest
import torch

from quant.errors import ModelError, SourceError
from recipes import efficientnet_lite


class Harmful:
    """A pickle that would run a command."""

    def __reduce__(self):
        return os.system, ("exit 1",)


def saved(path, state):
    torch.save(state, path)
    return str(path)


def test_it_takes_weights_called_as_the_published_ones_and_gives_a_score_to_each_class(tmp_path):
    modules = r"(conv_|bn\d|blocks|fc|expand_|depthwise_|project_)"
    state = {re.sub(rf"(^|\.){modules}", r"\1_\2", name): tensor for name, tensor in efficientnet_lite._Network().state_dict().items()}
    assert {"_conv_stem.weight", "_blocks.1._expand_conv.weight", "_blocks.1._bn0.running_mean", "_fc.bias"} <= set(state)
    network = efficientnet_lite.build(saved(tmp_path / "w.pth", state))
    assert not network.training
    assert sum(p.numel() for p in network.parameters()) == 4_652_008  # 4.65 million, as published
    with torch.no_grad():
        assert network(torch.zeros(2, 3, 224, 224))["logits"].shape == (2, 1000)


@pytest.mark.parametrize("state", [{"other": torch.zeros(1)}, Harmful(), [1, 2]], ids=["other names", "code", "no mapping"])
def test_anything_else_is_refused_and_not_run(tmp_path, state):
    with pytest.raises(ModelError, match="not the weights of EfficientNet-Lite0"):
        efficientnet_lite.build(saved(tmp_path / "w.pth", state))


def test_the_digest_is_checked_first(tmp_path):
    with pytest.raises(SourceError, match="SHA-256"):
        efficientnet_lite.build(saved(tmp_path / "w.pth", Harmful()), sha256="0" * 64)


def test_the_stages_are_those_of_the_paper():
    network = efficientnet_lite._Network()
    sizes = [(b.depthwise_conv.kernel_size[0], b.depthwise_conv.stride[0], b.project_conv.out_channels) for b in network.blocks]
    assert len(sizes) == 16
    assert sizes[0] == (3, 1, 16)
    assert sizes[-1] == (3, 1, 320)
    assert [stride for _, stride, _ in sizes].count(2) == 4
