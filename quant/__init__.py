"""Quantization and calibration of trained models, with a verdict that can be trusted.

To look at a model: `load_model`, `inspect`. From a recipe to a verdict: `load_recipe`, `run`; `load_report` and `Run.load` read a run that is over.
Its steps by themselves: `calibrate`, `evaluate`, `export`. Which layer in which format: `profile`, `plan`, `apply`, and `quant.notebook.Explorer`.
To distrust what was made: `audit`, `ladder`, `validate`, `verify`, `compare`. Loops of your own: `prepare_qat`, `convert`; `from_modelopt`.

A recipe is a YAML file or the name of a shipped one, and `overrides=["gate.max_drop=0.02"]` changes values of it. A run is given as itself or as its
folder. What comes back prints as a table, shows itself in a notebook, and has `to_frame()`, `plot()`, and mostly `save` and `load`. A mistake in what
was given is a `QuantError`, which says where it is and what to change.

Example:
    >>> import quant
    >>> quant.load_recipe("text-sentiment").recipe.name
    'text-sentiment'
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:  # at run time they are imported when they are first used
    from quant.api import (
        Artifact,
        Audited,
        CalibrationTable,
        Comparison,
        Evaluation,
        FromModelOpt,
        Inspection,
        Ladder,
        LoadedRecipe,
        Planned,
        QuantError,
        Report,
        Run,
        SensitivityProfile,
        Validation,
        Verdict,
        Verification,
        apply,
        audit,
        calibrate,
        compare,
        convert,
        evaluate,
        export,
        from_modelopt,
        inspect,
        ladder,
        load_model,
        load_recipe,
        load_report,
        plan,
        prepare_qat,
        profile,
        run,
        sign,
        validate,
        verify,
    )

__all__ = [
    "Artifact",
    "Audited",
    "CalibrationTable",
    "Comparison",
    "Evaluation",
    "FromModelOpt",
    "Inspection",
    "Ladder",
    "LoadedRecipe",
    "Planned",
    "QuantError",
    "Report",
    "Run",
    "SensitivityProfile",
    "Validation",
    "Verdict",
    "Verification",
    "apply",
    "audit",
    "calibrate",
    "compare",
    "convert",
    "evaluate",
    "export",
    "from_modelopt",
    "inspect",
    "ladder",
    "load_model",
    "load_recipe",
    "load_report",
    "plan",
    "prepare_qat",
    "profile",
    "run",
    "sign",
    "validate",
    "verify",
]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module 'quant' has no attribute {name!r}")
    return getattr(importlib.import_module("quant.api"), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
