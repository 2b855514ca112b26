"""What the tests of the twin share: small graphs from the zoo, and the standard's own tests."""

import importlib.util
from pathlib import Path

import pytest

SPEC = importlib.util.spec_from_file_location("zoo", Path(__file__).parents[1] / "graph" / "zoo.py")
_zoo = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(_zoo)


@pytest.fixture(scope="session")
def zoo():
    return _zoo
