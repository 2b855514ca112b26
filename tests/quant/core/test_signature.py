from quant.core.signature import TensorSpec


def test_a_tensor_is_written_with_its_name_type_and_shape():
    assert str(TensorSpec("ids", "int64", ("batch", 128))) == "ids: int64 [batch, 128]"
    assert str(TensorSpec("x", "float32", ())) == "x: float32 []"
    assert str(TensorSpec("x", "float32", None)) == "x: float32 unknown shape"
