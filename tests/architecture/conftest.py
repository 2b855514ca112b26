"""Where the project lies, and its modules."""

from pathlib import Path

import pytest

TOP = Path(__file__).resolve().parents[2]
PACKAGES = ("quant", "calibrators", "evaluators", "recipes")


@pytest.fixture(scope="session")
def top():
    return TOP


@pytest.fixture(scope="session")
def sources():
    """Every Python file that ships."""
    return sorted(path for package in PACKAGES for path in (TOP / package).rglob("*.py"))
