"""joint: a whole quantized model beside FP32 on search samples, in the very measure that sensitivity was found in."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import zip_longest

import numpy as np

from quant.data.batches import batches, safe_batch_size
from quant.data.samples import Samples
from quant.sensitivity.measuring.outputs import Measures, OutputMeasure, compare
from quant.sensitivity.measuring.sums import Shares
from quant.stages.running import Feeding, Run, run_samples


def joint_error(run: Run, reference: Run, samples: Samples, feeding: Feeding, chosen: Sequence[OutputMeasure]) -> tuple[float, float]:
    """(error, standard error) of a model's outputs, as effects of single layers are measured.

    Args:
        run: The quantized model.
        reference: The FP32 model.
        samples: What both run on, the same as for the profile.
        feeding: How samples go in.
        chosen: What is measured of which output.

    Raises:
        DataError: A sample does not fit the model.
    """
    measures = Measures(chosen, feeding.signature, feeding.batch_axes, samples)
    shares = Shares(measures.weights)
    if feeding.state:
        pairs = zip_longest(run_samples(reference, samples, feeding), run_samples(run, samples, feeding))
        for (_, wanted), (_, found) in pairs:
            for w, f in zip(wanted, found, strict=True):
                both = [compare(m, f[m.output][None], w[m.output][None], None) for m in measures.chosen]
                shares.add(np.stack([error for error, _ in both], axis=1), np.stack([signal for _, signal in both], axis=1))
        return shares.value()
    size = safe_batch_size(feeding.signature, feeding.batch_size, batch_axes=feeding.batch_axes)
    for batch in batches(samples, feeding.signature.inputs, batch_size=size, batch_axes=feeding.batch_axes):
        shares.add(*measures.errors(run(batch.feed), reference(batch.feed), batch))
    return shares.value()
