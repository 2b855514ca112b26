"""What every processor owes, whichever there are."""

import inspect

import pytest

from quant.core.registry import Options
from quant.data.processors import PROCESSORS, Setting, Traits, shorten
from quant.errors import DataError


@pytest.mark.parametrize("kind", list(PROCESSORS))
def test_a_processor_has_all_members_and_documents_its_options(kind):
    cls = PROCESSORS.get(kind)
    assert cls.kind == kind
    assert issubclass(cls.Options, Options)
    for name in ("open", "feeds", "content", "display"):
        assert callable(getattr(cls, name))
    for name in ("columns", "traits", "digest"):
        assert isinstance(inspect.getattr_static(cls, name), property)
    for name in cls.Options.model_fields:
        assert f"{name}: " in inspect.getdoc(cls.Options), f"option {name} of {kind} is not documented"


def test_a_missing_column_names_the_nearest():
    with pytest.raises(DataError, match=r"(?s)recipe.yaml:3: no column 'tekst' in the data.*did you mean 'text'"):
        Setting(None, columns=("text", "id"), where="recipe.yaml:3").need(["tekst"])


def test_traits_allow_no_cast_by_default():
    import numpy as np

    assert not Traits().may_cast(np.dtype("int64"), np.dtype("int32"))


def test_a_short_text_stays_as_it_is():
    assert shorten("short enough", 12) == "short enough"
