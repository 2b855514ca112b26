"""A torch module that a function of the user's builds."""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from quant.core.registry import did_you_mean
from quant.data.code import load_function
from quant.data.samples import Feed, Samples
from quant.errors import DataError, ModelError
from quant.graph.importing.trial import Array


def build_module(reference: str, arguments: Mapping[str, Any], *, base: Path, trust_code: bool, where: str, train: Samples | None = None) -> Any:
    """The module that `module:function` (or `path/to/file.py:function`) builds, in inference mode and FP32.

    The random numbers that the function draws start from a fixed seed. A function with an argument called `train` gets the
    samples of the recipe's `train` split, each with its `feeds` and its `label`: it trains on these and sees no others.

    Raises:
        ModelError: The code is not trusted, is not there, fails, builds something else, or wants a `train` split that the
            recipe does not have.
    """
    import torch  # noqa: PLC0415 - heavy

    name, _, function_name = reference.partition(":")
    home = base
    if name.endswith(".py"):
        file = base / name
        home, name = file.parent, file.stem
    try:
        function = load_function(f"{name}:{function_name}", base=home, trust_code=trust_code, where=where)
    except DataError as error:
        raise ModelError(error.what, where=error.where, hint=error.hint) from error
    arguments = _with_train(function, arguments, train, reference, where)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        try:
            module = function(**arguments)
        except TypeError as error:
            _check_arguments(function, arguments, reference, where)
            raise ModelError(f"{reference} fails: {error}", where=where, hint="see model.arguments") from error
    if not isinstance(module, torch.nn.Module):
        raise ModelError(f"{reference} gives {type(module).__name__}, not a torch.nn.Module", where=where, hint="return the module itself")
    return module.float().cpu().eval()


def _with_train(function: Any, arguments: Mapping[str, Any], train: Samples | None, reference: str, where: str) -> dict[str, Any]:
    """`arguments`, and the train samples where the function asks for them."""
    parameter = inspect.signature(function).parameters.get("train")
    if parameter is None or "train" in arguments:
        return dict(arguments)
    if train is not None:
        return {**arguments, "train": train}
    if parameter.default is inspect.Parameter.empty:
        raise ModelError(f"{reference} trains, and the recipe has no train split", where=where, hint="add `data.splits.train`, as in `train: rest`")
    return dict(arguments)


def _check_arguments(function: Any, arguments: Mapping[str, Any], reference: str, where: str) -> None:
    try:
        inspect.signature(function).bind(**arguments)
    except TypeError as error:
        known = ", ".join(inspect.signature(function).parameters) or "none"
        written = {name: value for name, value in arguments.items() if name != "train"}
        raise ModelError(f"{reference} cannot be called with model.arguments {written}: {error}", where=where, hint=f"its arguments: {known}") from error


def export_feed(
    module: Any, examples: Sequence[Feed], batch_axes: Mapping[str, int | None], *, where: str
) -> tuple[dict[str, Array], dict[str, dict[int, str]]]:
    """A feed to export `module` with (in the order of its arguments, two in a batch), and its dynamic axes.

    The batch axis is dynamic, and so is every other axis whose length differs between examples.

    Raises:
        ModelError: There are no examples, or they do not fit the arguments of the module's `forward`.
    """
    if not examples:
        raise ModelError("exporting a torch module needs examples of its inputs", where=where, hint="give data in the recipe")
    names = _inputs(module, examples[0], where)
    feed: dict[str, Array] = {}
    dynamic: dict[str, dict[int, str]] = {}
    ranks = {name: {np.ndim(e[name]) for e in examples} for name in names}
    uneven = [name for name in names if len(ranks[name]) > 1]
    if uneven:
        raise ModelError(
            f"input {uneven[0]!r} has different numbers of axes among the examples: {sorted(ranks[uneven[0]])}", where=where, hint="see data.inputs"
        )
    chosen = max(examples, key=lambda e: tuple(min(np.shape(e[n]), default=0) for n in names))  # torch treats a length of 1 as fixed
    for name in names:
        axis = batch_axes.get(name, 0)
        array = np.asarray(chosen[name])
        shapes = [np.shape(e[name]) for e in examples]
        moving = [i for i in range(array.ndim) if len({s[i] for s in shapes}) > 1]
        dynamic[name] = {i + (axis is not None and i >= axis): f"{name}_{i + (axis is not None and i >= axis)}" for i in moving}
        if axis is not None:
            array = np.repeat(np.expand_dims(array, axis), 2, axis=axis)
            dynamic[name][axis] = "batch"
        feed[name] = array
    return feed, dynamic


def _inputs(module: Any, example: Feed, where: str) -> list[str]:
    """Names of the inputs, in the order in which `forward` takes them."""
    parameters = inspect.signature(module.forward).parameters
    plain = {inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD}
    names = [p.name for p in parameters.values() if p.kind in plain]
    unknown = sorted(set(example) - set(names))
    missing = [n for n in names if n not in example and parameters[n].default is inspect.Parameter.empty]
    if unknown:
        raise ModelError(f"the data gives {unknown[0]!r}, which is no argument of the module's forward", where=where, hint=did_you_mean(unknown[0], names))
    if missing:
        raise ModelError(
            f"the data gives nothing for argument {missing[0]!r} of the module's forward", where=where, hint=f"the data gives: {', '.join(sorted(example))}"
        )
    used = [n for n in names if n in example]
    if used != names[: len(used)]:
        raise ModelError(f"the data skips arguments of the module's forward: {names}", where=where, hint="give the optional arguments last, or feed them all")
    return used
