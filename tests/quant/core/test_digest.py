"""Digests against hashes written out by hand with hashlib."""

from __future__ import annotations

import hashlib

import ml_dtypes
import numpy as np
import pytest

from quant.core.digest import canonical_json, digest_of, digest_of_arrays, digest_of_file, digest_of_folder


def sha(data):
    return hashlib.sha256(data).hexdigest()


def test_a_value_is_the_hash_of_its_canonical_json():
    assert digest_of({"b": [1, 2.5, None, True], "a": "ü"}) == sha('{"a":"ü","b":[1,2.5,null,true]}'.encode())
    assert digest_of({}) == "44136fa355b3678a1146ad16f7e8649e94fb4fc21fe77e8310c060f61caaff8a"


def test_the_order_of_keys_does_not_matter_and_that_of_lists_does():
    assert digest_of({"a": 1, "b": 2}) == digest_of({"b": 2, "a": 1})
    assert digest_of([1, 2]) != digest_of([2, 1])


@pytest.mark.parametrize("value", [float("nan"), float("inf"), {"a": [-float("inf")]}])
def test_what_json_has_no_word_for_is_refused(value):
    with pytest.raises(ValueError, match="Out of range float values are not JSON compliant"):
        canonical_json(value)


def test_floats_are_written_in_their_shortest_exact_form():
    assert canonical_json([0.1, 1e22, 2.0**-1074, -0.0]) == "[0.1,1e+22,5e-324,-0.0]"


def test_arrays_are_the_hash_of_names_types_shapes_and_bytes():
    arrays = {"w": np.float32([[1, 2]]), "b": np.int64([3])}
    expected = b"b\0<i8\0int64\0(1,)\0" + bytes([3, 0, 0, 0, 0, 0, 0, 0]) + b"w\0<f4\0float32\0(1, 2)\0" + b"\0\0\x80?\0\0\0@"
    assert digest_of_arrays(arrays) == sha(expected)
    assert digest_of_arrays(dict(reversed(arrays.items()))) == sha(expected)
    assert digest_of_arrays({}) == sha(b"")


def test_arrays_that_differ_in_anything_have_other_digests():
    base = np.zeros((2, 2), np.float32)
    others = [
        base + 1,
        base.reshape(4),
        base.astype(np.float16),
        base.astype(np.int32),
        base.astype(">f4"),
        np.zeros((), np.float32),
        np.zeros(1, np.float32),
        base[:0],
    ]
    digests = {digest_of_arrays({"x": array}) for array in [base, *others]}
    assert len(digests) == 1 + len(others)
    assert digest_of_arrays({"y": base}) not in digests


def test_types_beyond_numpys_own_are_told_apart():
    kinds = [ml_dtypes.float8_e4m3fn, ml_dtypes.float8_e5m2, ml_dtypes.int4, ml_dtypes.bfloat16]
    assert len({digest_of_arrays({"x": np.zeros(2, kind)}) for kind in kinds}) == len(kinds)


def test_memory_order_does_not_matter():
    array = np.arange(12, dtype=np.float32).reshape(3, 4)
    assert digest_of_arrays({"x": np.asfortranarray(array)}) == digest_of_arrays({"x": array})
    assert digest_of_arrays({"x": array.T}) == digest_of_arrays({"x": array.T.copy()})


def test_objects_are_hashed_by_what_they_are_and_not_where_they_are():
    first, second = (np.array([f"long {word}", "b"], dtype=object) for word in ["text"] * 2)
    assert first[0] is not second[0]
    assert digest_of_arrays({"x": first}) == digest_of_arrays({"x": second})
    assert digest_of_arrays({"x": first}) != digest_of_arrays({"x": np.array(["a", "b"], dtype=object)})


def test_dates_and_texts_have_digests_too():
    assert digest_of_arrays({"x": np.array(["2020-01-01"], "M8[D]")}) != digest_of_arrays({"x": np.array(["2020-01-02"], "M8[D]")})
    assert digest_of_arrays({"x": np.array(["a"])}) != digest_of_arrays({"x": np.array(["b"])})


def test_a_file_is_the_hash_of_its_bytes(tmp_path):
    path = tmp_path / "x"
    data = bytes(range(256)) * 9000  # more than one piece
    path.write_bytes(data)
    assert digest_of_file(path) == sha(data)


def test_a_folder_is_the_hash_of_its_names_and_files(tmp_path):
    (tmp_path / "a/b").mkdir(parents=True)
    (tmp_path / "a/b/c.txt").write_bytes(b"one")
    (tmp_path / "z").write_bytes(b"two")
    assert digest_of_folder(tmp_path) == digest_of({"a/b/c.txt": sha(b"one"), "z": sha(b"two")})
    before = digest_of_folder(tmp_path)
    (tmp_path / "z").rename(tmp_path / "y")
    assert digest_of_folder(tmp_path) != before
