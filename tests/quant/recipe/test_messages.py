"""The words in which mistakes are told."""

from typing import Annotated, Literal

import pytest
from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator, model_validator

from quant.errors import RecipeError
from quant.recipe.load import load_recipe
from quant.recipe.messages import section_error
from quant.recipe.yaml_text import read_text


def message(write, **sections):
    parts = {"version": "1", "name": "x", "model": "{source: m}", "data": "{source: d}"} | sections
    with pytest.raises(RecipeError) as caught:
        load_recipe(write("".join(f"{key}: {value}\n" for key, value in parts.items())))
    return str(caught.value)


@pytest.mark.parametrize(
    ("sections", "text"),
    [
        ({"shcemes": "[int8]"}, "my.yaml:5: unknown key 'shcemes'\nhint: did you mean 'schemes'?"),
        ({"extend": "a.yaml"}, "my.yaml:5: unknown key 'extend'\nhint: did you mean 'extends'?"),
        ({"model": "{source: m, pool: cls}"}, "my.yaml:3: unknown key 'pool' in model\nhint: did you mean 'pooling'?"),
        ({"model": "{source: m, head: {c: 1}}"}, "my.yaml:3: unknown key 'c' in model.head\nhint: known: C, kind, max_iter, output"),
        ({"data": "{source: d, where: [{colum: x, column: y}]}"}, "my.yaml:4: unknown key 'colum' in data.where.0\nhint: did you mean 'column'?"),
        ({"data": "{source: d, splits: {search: {off: x}}}"}, "my.yaml:4: unknown key 'off' in data.splits.search\nhint: did you mean 'of'?"),
        ({"gate": "[{max_drop: 1}, {max_dorp: 1}]"}, "my.yaml:5: unknown key 'max_dorp' in gate.1\nhint: did you mean 'max_drop'?"),
        ({"model": "{kind: onnx}"}, "my.yaml:3: missing key 'source' in model"),
        ({"schemes": "[{kin: int8}]"}, "my.yaml:5: missing key 'kind' in schemes.0\nhint: is it 'kin' there?"),
        ({"schemes": "[8]"}, "my.yaml:5: schemes.0: expected a name, or a mapping with `kind`, got 8"),
        ({"schemes": "[]"}, "my.yaml:5: schemes: expected at least 1 in the list, got an empty list"),
        ({"targets": "onnxruntime"}, "my.yaml:5: targets: expected a list, got 'onnxruntime'\nhint: a list of one is written [onnxruntime]"),
        ({"name": "My Model"}, "my.yaml:2: name: expected lower-case letters, digits and hyphens, such as my-model, got 'My Model'"),
        ({"name": "8"}, "my.yaml:2: name: expected text, got 8\nhint: in quotes it is text: '8'"),
        ({"description": "true"}, "my.yaml:5: description: expected text, got true\nhint: in quotes it is text: 'true'"),
        ({"model": "{source: m, normalize: 'yes'}"}, "my.yaml:3: model.normalize: expected true or false, got 'yes'"),
        ({"model": "{source: m, normalize: 1}"}, "my.yaml:3: model.normalize: expected true or false, got 1"),
        (
            {"model": "{source: m, kind: onx}"},
            "my.yaml:3: model.kind: expected 'auto', 'onnx', 'huggingface', 'gguf' or 'torch', got 'onx'\nhint: did you mean 'onnx'?",
        ),
        ({"model": "{source: m, sha256: abc}"}, "my.yaml:3: model.sha256: expected 64 hexadecimal digits in lower case, got 'abc'"),
        ({"model": "{source: m, batch_axes: {x: first}}"}, "my.yaml:3: model.batch_axes.x: expected a whole number, got 'first'"),
        ({"gate": "{max_drop: abc}"}, "my.yaml:5: gate.max_drop: expected a number, got 'abc'"),
        ({"gate": "{max_drop: true}"}, "my.yaml:5: gate.max_drop: expected a number, got true"),
        ({"gate": "{max_drop: -1}"}, "my.yaml:5: gate.max_drop: expected a number of at least 0.0, got -1"),
        ({"gate": "{confidence: 1}"}, "my.yaml:5: gate.confidence: expected a number below 1.0, got 1"),
        ({"gate": "5"}, "my.yaml:5: gate: expected a mapping, got 5"),
        ({"latency": "{requests: 2.5}"}, "my.yaml:5: latency.requests: expected a whole number, got 2.5"),
        (
            {"latency": "{requests: '2'}"},
            "my.yaml:5: latency.requests: expected a whole number, got '2'\nhint: write the number without quotes and underscores",
        ),
        (
            {"latency": "{requests: 1_000}"},
            "my.yaml:5: latency.requests: expected a whole number, got '1_000'\nhint: write the number without quotes and underscores",
        ),
        ({"latency": ""}, "my.yaml:5: latency: expected a mapping, got nothing (null)"),
        ({"data": "{source: d, splits: {search: half}}"}, "my.yaml:4: data.splits.search: expected a number, 'rest' or a mapping, got 'half'"),
        (
            {"data": "{source: d, splits: {search: [1]}}"},
            "my.yaml:4: data.splits.search: expected a number, 'rest' or a mapping, got a list",
        ),
        ({"data": "{source: d, label: {classes: [a, null]}}"}, "my.yaml:4: data.label.classes.1: expected text or a number, got nothing (null)"),
        ({"description": "[" + "x" * 90 + "]", "name": "y" * 90 + "_"}, None),
    ],
)
def test_a_mistake_is_told_with_place_value_and_hint(write, sections, text):
    told = message(write, **sections)
    if text is None:
        assert told == (
            f"my.yaml:2: name: expected lower-case letters, digits and hyphens, such as my-model, got '{'y' * 58}…\n"
            "my.yaml:5: description: expected text, got a list"
        )
    else:
        assert told == text


def test_all_mistakes_are_told_at_once_in_the_order_of_lines(write):
    told = message(write, gate="{max_dorp: 1, confidence: 2}", model="{sorce: m}", latency="{warmup: x}")
    assert told.splitlines() == [
        "my.yaml:3: missing key 'source' in model",
        "my.yaml:3: unknown key 'sorce' in model (did you mean 'source'?)",
        "my.yaml:5: gate.confidence: expected a number below 1.0, got 2",
        "my.yaml:5: unknown key 'max_dorp' in gate (did you mean 'max_drop'?)",
        "my.yaml:6: latency.warmup: expected a whole number, got 'x'",
    ]


class Inner(BaseModel):
    model_config = ConfigDict(extra="forbid")
    inner: int


class Pair(BaseModel):
    low: int
    high: int

    @model_validator(mode="after")
    def _ordered(self):
        if self.low > self.high:
            raise ValueError(f"{self.low} is more than {self.high}")
        return self


class Wide(BaseModel):
    model_config = ConfigDict(extra="forbid")
    either: Annotated[Literal["auto"] | Inner, Field(union_mode="left_to_right")] = "auto"
    table: dict[str, Inner] = {}
    word: str = Field("ab", min_length=2, max_length=3)
    many: list[int] = Field([1], max_length=2)
    step: int = Field(4, multiple_of=4)
    even: int = 0
    pattern: str = Field("x", pattern="^x$")
    day: Literal[1, 2] = 1
    pair: Pair | None = None

    @field_validator("even")
    @classmethod
    def _even(cls, value):
        if value % 2:
            raise ValueError(f"{value} is odd")
        return value


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("{either: {inner: x}}", "f:1: s.either.inner: expected a whole number, got 'x'"),
        ("{table: {k: {iner: 1}}}", "f:1: missing key 'inner' in s.table.k\nf:1: unknown key 'iner' in s.table.k (did you mean 'inner'?)"),
        ("{table: {inner: {}}}", "f:1: missing key 'inner' in s.table.inner"),
        ("{word: a}", "f:1: s.word: expected text of at least 2 characters, got 'a'"),
        ("{word: abcd}", "f:1: s.word: expected text of at most 3 characters, got 'abcd'"),
        ("{many: [1, 2, 3]}", "f:1: s.many: expected at most 2 in the list, got a list"),
        ("{step: 3}", "f:1: s.step: expected a multiple of 4, got 3"),
        ("{even: 3}", "f:1: s.even: 3 is odd, got 3"),
        ("{pair: {low: 3, high: 2}}", "f:1: s.pair: 3 is more than 2"),
        ("{pattern: y}", "f:1: s.pattern: expected text that matches ^x$, got 'y'"),
        ("{day: 5}", "f:1: s.day: expected 1 or 2, got 5"),
    ],
)
def test_options_of_any_form_are_told_in_the_same_words(text, told):
    root = read_text(f"s: {text}", "f")
    with pytest.raises(ValidationError) as caught:
        Wide.model_validate(root.plain()["s"])
    error = str(section_error(root, ("s",), caught.value, Wide))
    assert error.splitlines()[: told.count("\n") + 1] == told.splitlines()
