"""Records what NVIDIA ModelOpt writes into small modules, so that reading it is tested where the package is not installed.

    python tests/quant/engine/modelopt_recorded/make.py

needs `nvidia-modelopt`, and writes one `.npz` for each configuration: weights, scales, an input and the output of the quantized module,
and, as JSON, the package's version and what the quantizers' attributes say.
"""

import json
from pathlib import Path

import numpy as np
import torch

WIDTHS = {"INT8_DEFAULT_CFG": (16, 12, 4), "INT8_SMOOTHQUANT_CFG": (16, 12, 4), "FP8_DEFAULT_CFG": (16, 12, 4)}
WIDTHS |= {"INT4_BLOCKWISE_WEIGHT_ONLY_CFG": (128, 128, 2), "INT4_AWQ_CFG": (128, 128, 2)}
PLAIN = ("num_bits", "block_sizes", "is_enabled", "unsigned", "_dynamic", "rotate_is_enabled")
TENSORS = ("amax", "pre_quant_scale")


def recorded(quantizer):
    """Attributes of a quantizer that JSON can hold (keys of `block_sizes` become text), and its tensors."""
    told = {name: getattr(quantizer, name, None) for name in PLAIN}
    told["block_sizes"] = None if told["block_sizes"] is None else [[key, value] for key, value in dict(told["block_sizes"]).items()]
    tensors = {name: value.detach().numpy() for name in TENSORS if (value := getattr(quantizer, name, None)) is not None}
    return {"class": type(quantizer).__name__, "module": type(quantizer).__module__, **told}, tensors


def record(config, folder):
    """Quantize a module of two products by `config`, and write what is found in it."""
    import modelopt
    import modelopt.torch.quantization as mtq

    torch.manual_seed(0)
    wide, middle, narrow = WIDTHS[config]
    net = torch.nn.Sequential(torch.nn.Linear(wide, middle), torch.nn.ReLU(), torch.nn.Linear(middle, narrow)).eval()
    x = torch.randn(16, wide)
    made = mtq.quantize(net, getattr(mtq, config), lambda module: module(x))
    told, arrays = {}, {"x": x.numpy()}
    with torch.no_grad():
        arrays["y"] = made(x).numpy()
    for layer in ("0", "2"):
        part = made.get_submodule(layer)
        arrays |= {f"{layer}.weight": part.weight.detach().numpy(), f"{layer}.bias": part.bias.detach().numpy()}
        quantizers = {name: child for name, child in part.named_children() if type(child).__name__.endswith("Quantizer")}
        told[layer] = {"class": type(part).__name__, "module": type(part).__module__, "quantizers": {}}
        for name, quantizer in quantizers.items():
            told[layer]["quantizers"][name], tensors = recorded(quantizer)
            arrays |= {f"{layer}.{name}.{tensor}": array for tensor, array in tensors.items()}
    arrays["told"] = np.array(json.dumps({"version": modelopt.__version__, "config": config, "layers": told}, sort_keys=True))
    np.savez_compressed(folder / f"{config.lower()}.npz", allow_pickle=False, **arrays)


if __name__ == "__main__":
    for each in WIDTHS:
        record(each, Path(__file__).parent)
