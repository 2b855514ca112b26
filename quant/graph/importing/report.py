"""What an import and the fitting of a head report."""

from __future__ import annotations

from quant.core.documents import Document


class Step(Document):
    """One step of the clean-up.

    Args:
        name: What the step does.
        count: Number of nodes or tensors that it changed.
        max_abs_change: Largest absolute change of any output on the examples; None when there was nothing to run.
    """

    name: str
    count: int
    max_abs_change: float | None = None


class ImportReport(Document):
    """How a model was brought in.

    Args:
        kind: `onnx`, `huggingface` or `torch`.
        steps: The steps that changed something, in order.
        opset_before: Version of the default operator set as brought, or as torch's exporter wrote it; 0 when the model uses none.
        opset_after: The version as written.
        parity_max_abs: Largest absolute difference between torch and the written graph; None for an ONNX file.
        notes: What a reader should know.
    """

    kind: str
    steps: tuple[Step, ...]
    opset_before: int
    opset_after: int
    parity_max_abs: float | None = None
    notes: tuple[str, ...] = ()


class HeadReport(Document):
    """How a linear probe was fitted and fused.

    Args:
        output: The output that holds the embeddings.
        dimension: Length of one embedding.
        classes: Number of classes; column i of the logits belongs to label i.
        samples: Number of embeddings it was fitted on.
        iterations: Iterations of the solver.
        accuracy: Share of the fitted samples that it gets right (no estimate for new ones).
        max_abs_error: Largest difference between the fused head's log-probabilities and scikit-learn's.
        notes: What a reader should know.
    """

    output: str
    dimension: int
    classes: int
    samples: int
    iterations: int
    accuracy: float
    max_abs_error: float
    notes: tuple[str, ...] = ()
