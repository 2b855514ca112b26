"""Quantization and calibration of trained models, with a verdict that can be trusted.

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
