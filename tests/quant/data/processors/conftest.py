"""Opened processors and records."""

import pytest

from quant.data.processors import PROCESSORS, Setting
from quant.data.record import Record


@pytest.fixture
def opened(tmp_path):
    def opened(kind, available=None, /, *, label_column=None, model_folder=None, trust_code=False, **options):
        processor = PROCESSORS.make(kind, options)
        processor.open(Setting(tmp_path, tuple(available or ("text", "image", "audio", "x")), label_column, model_folder, trust_code, "recipe.yaml:7"))
        return processor

    return opened


@pytest.fixture
def record(tmp_path):
    def record(**values):
        return Record(3, values, "data row 3", tmp_path)

    return record
