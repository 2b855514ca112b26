import pytest

import quant.errors
from quant.errors import QuantError

FAMILY = [kind for kind in vars(quant.errors).values() if isinstance(kind, type) and issubclass(kind, QuantError)]


@pytest.mark.parametrize("kind", FAMILY)
def test_an_error_says_where_what_and_a_hint(kind):
    assert str(kind("no key 'a'")) == "no key 'a'"
    assert str(kind("no key 'a'", where="r.yaml:3")) == "r.yaml:3: no key 'a'"
    assert str(kind("no key 'a'", hint="add it")) == "no key 'a'\nhint: add it"
    assert str(kind("no key 'a'", where="r.yaml:3", hint="add it")) == "r.yaml:3: no key 'a'\nhint: add it"


@pytest.mark.parametrize("kind", FAMILY)
def test_an_error_takes_the_first_place_that_it_is_given(kind):
    error = kind("too long")
    assert error.at("layer 3") is error
    assert error.at("model") is error
    assert (error.what, error.where, error.hint) == ("too long", "layer 3", "")


def test_one_except_catches_the_whole_family():
    for kind in FAMILY:
        with pytest.raises(QuantError, match=r"^here: what$"):
            raise kind("what", where="here")
