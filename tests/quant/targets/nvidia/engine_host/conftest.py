"""The fake GPU, for all tests of this folder."""

import importlib.util
from pathlib import Path

import pytest

SPEC = importlib.util.spec_from_file_location("fake_gpu", Path(__file__).with_name("fake_gpu.py"))
FAKE = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(FAKE)


@pytest.fixture
def gpu():
    return FAKE
