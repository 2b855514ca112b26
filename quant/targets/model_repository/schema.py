"""Triton's own schema of a configuration, out of the client package."""

from __future__ import annotations

import importlib.util
from functools import cache
from pathlib import Path
from typing import Any

from quant.errors import TargetError

PACKAGE = "tritonclient"
_SCHEMA = ("grpc", "model_config_pb2.py")


@cache
def _schema() -> Any:
    """The generated module alone: importing its package would import gRPC."""
    spec = importlib.util.find_spec(PACKAGE)
    places = [] if spec is None else [Path(place).joinpath(*_SCHEMA) for place in spec.submodule_search_locations or ()]
    place = next((path for path in places if path.is_file()), None)
    if place is None:
        return None
    found = importlib.util.spec_from_file_location("_triton_model_config", place)
    assert found is not None
    assert found.loader is not None
    module = importlib.util.module_from_spec(found)
    found.loader.exec_module(module)
    return module


def has_schema() -> bool:
    """Whether Triton's schema is installed."""
    return _schema() is not None


def parsed(text: str) -> Any:
    """The configuration in `text` as Triton itself reads it: an `inference.ModelConfig` message.

    Raises:
        TargetError: The schema knows no such field or value.
    """
    from google.protobuf import text_format  # noqa: PLC0415 - heavy

    module = _schema()
    assert module is not None, "asked without the schema"
    message = module.ModelConfig()
    try:
        text_format.Parse(text, message)
    except text_format.ParseError as error:
        raise TargetError(f"Triton's schema refuses the configuration: {error}") from error
    return message
