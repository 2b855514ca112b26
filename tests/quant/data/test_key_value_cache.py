"""A graph that wants the keys and values of earlier tokens is told apart from one whose data are incomplete."""

import numpy as np
import pytest

from quant.data.checks import check_feed
from quant.errors import DataError


def test_a_decoder_with_a_cache_is_refused_with_what_to_do(signature):
    inputs = signature(**{"input_ids": ("int64", "N", "T"), "past_key_values.0.key": ("float32", "N", 3, "P", 64)}).inputs
    message = r"(?s)nothing feeds the model's input 'past_key_values.0.key'.*hint: export the decoder without a cache of keys and values \(`use_cache=False`\)"
    with pytest.raises(DataError, match=message):
        check_feed({"input_ids": np.arange(5)}, inputs, sample_index=0)
