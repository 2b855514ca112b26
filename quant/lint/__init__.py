"""Checking a finished graph against what a serving engine refuses, or accepts and quietly runs otherwise.

A rule looks at facts about the graph and says where it is broken; it knows what the engine itself would say, so that a
finding and the engine's own message can be searched for with the same words.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar, Literal

import onnx_ir as ir

from quant.core.registry import Options as PluginOptions
from quant.core.registry import Registry
from quant.lint.facts import Facts

Severity = Literal["error", "silent", "warning"]
SEVERITIES: tuple[Severity, ...] = ("error", "silent", "warning")
"""From worst to mildest: the engine refuses the graph; it takes it and runs something else, without a word; worth knowing."""


@dataclass(frozen=True)
class Place:
    """Where a rule is broken.

    Args:
        node: The node to look at; None for the model as a whole.
        detail: What is wrong there, with the values.
        tensor: Name of the tensor that it is about.
        severity: Where this place is worse or milder than the rule in general.
    """

    node: ir.Node | None
    detail: str
    tensor: str = ""
    severity: Severity | None = None


class Rule(ABC):
    """One thing that an engine minds. Subclasses are registered, one or a few closely related ones a file.

    A rule that can mend what it finds without changing what the graph computes also has `mend`.
    """

    kind: ClassVar[str]
    severity: ClassVar[Severity]
    title: ClassVar[str]
    text: ClassVar[str] = ""
    """What TensorRT itself says; empty where it says nothing."""
    why: ClassVar[str]
    fix: ClassVar[str]
    observed: ClassVar[str] = ""
    """What TensorRT-RTX 1.7.1 was seen to do where that differs from what the rule says of TensorRT."""

    class Options(PluginOptions):
        """Rules have no options."""

    def __init__(self, options: Options) -> None:
        self.options = options

    @abstractmethod
    def check(self, facts: Facts) -> Iterator[Place]:
        """Every place where `facts` break this rule."""

    def mend(self, facts: Facts) -> int:
        """Mend in place what can be mended safely; gives the number of places. Facts are stale afterwards."""
        del facts
        return 0


RULES: Registry[Rule] = Registry("rule", "quant.lint.rules")
