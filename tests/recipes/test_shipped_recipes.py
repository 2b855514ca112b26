"""What every shipped recipe owes."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

import recipes
from quant.cli import EXIT
from quant.core.digest import digest_of_file
from quant.core.registry import Registry
from quant.engine.bind import REGISTRIES, bind
from quant.recipe.json_schema import json_schema
from quant.recipe.load import load_recipe
from quant.recipe.shipped import shipped
from quant.recipe.yaml_text import read_text
from quant.report.load import load_report

jsonschema = pytest.importorskip("jsonschema")

FOLDER = Path(next(iter(recipes.__path__)))
SCHEMA = FOLDER / "recipe.schema.json"
FILES = ("report.html", "report.json", "report.md", "junit.xml")


@pytest.fixture(params=shipped())
def name(request):
    return request.param


@pytest.fixture
def path(name):
    return shipped()[name]


def test_there_are_recipes():
    assert len(shipped()) >= 4


def test_it_loads_and_is_called_like_its_file(name, path):
    assert load_recipe(path).recipe.name == name


def test_its_names_and_options_bind_without_trusting_code(path):
    bound = bind(load_recipe(path), trust_code=False)
    assert bound.schemes
    assert bound.gates, "a recipe without a gate gives no verdict"


def test_what_is_fetched_is_pinned_by_version_and_digest(path):
    """A recipe that gives the same result tomorrow names a version and a SHA-256 of all that it fetches."""
    recipe = load_recipe(path).recipe
    own = [split.data for role in ("train", "calibration", "search", "evaluation") if (split := getattr(recipe.data.splits, role)) and split.data]
    for place in (recipe.model, recipe.data, *own):
        spec = {**place.arguments, **place.model_dump(include={"source", "file", "sha256"}, exclude_none=True)}
        if not spec["source"].startswith(("package:", "npm:")):
            spec |= {key: place.arguments[key] for key in ("source", "sha256") if key in place.arguments}
        if spec["source"].startswith(("package:", "npm:")):
            assert re.search(r"==|.@\d", spec["source"])
            assert spec.get("sha256"), f"{spec['source']} has no sha256"
        else:
            assert re.fullmatch(r"recipes\.\w+:\w+", spec["source"]), f"{spec['source']} is neither a package nor code of ours"


def test_it_names_the_schema_for_editors_in_its_first_line(path):
    found = re.fullmatch(r"# yaml-language-server: \$schema=(\S+)", path.read_text(encoding="utf-8").splitlines()[0])
    assert found, "the first line is `# yaml-language-server: $schema=...`"
    assert (path.parent / found[1]).is_file()


def test_it_is_valid_by_that_schema(path):
    schema = json.loads(SCHEMA.read_text(encoding="utf-8"))
    jsonschema.Draft202012Validator(schema).validate(read_text(path.read_text(encoding="utf-8"), str(path)).plain())


def test_the_schema_is_that_of_the_code():
    """`quant schema --output recipes/recipe.schema.json` writes it anew."""
    assert all(isinstance(registry, Registry) for registry in REGISTRIES.values())
    assert json.loads(SCHEMA.read_text(encoding="utf-8")) == json_schema(REGISTRIES)


def test_the_catalogue_has_every_recipe_and_no_other():
    listed = re.findall(r"^\| \[`([a-z0-9-]+)`\]\(([^)]+)\)", (FOLDER / "README.md").read_text(encoding="utf-8"), re.MULTILINE)
    assert [name for name, _ in listed] == sorted(shipped())
    assert all(file == f"{name}.yaml" for name, file in listed)


def test_the_catalogue_names_the_packages_that_each_recipe_fetches(name, path):
    row = next(line for line in (FOLDER / "README.md").read_text(encoding="utf-8").splitlines() if line.startswith(f"| [`{name}`]"))
    packages = set(re.findall(r"(?:package:|npm:)([\w-]+)(?:==|@)", path.read_text(encoding="utf-8")))
    assert packages
    assert {package for package in packages if package not in row} == set()


SHORTER = {
    # Whole, it takes more than ten minutes: `pytest -m benchmark tests/recipes/test_language_model.py`.
    "language-model": (
        "schemes=[{kind: int4, method: rtn, block_size: 64, search: false, embeddings: false}]",
        "data.splits.calibration.samples=16",
        "data.splits.evaluation=4",
    ),
    # Its plan takes a minute and more: `pytest -m benchmark tests/benchmarks/test_mixed_plans.py`.
    "ocr-lines": ("plan=null",),
}


@pytest.mark.slow
@pytest.mark.network
def test_it_runs_from_end_to_end(name, tmp_path):
    changes = SHORTER.get(name, ())
    told = [part for change in changes for part in ("--set", change)]
    done = subprocess.run([sys.executable, "-m", "quant.cli", "run", name, "--output", str(tmp_path), *told], capture_output=True, text=True, check=False)
    report = load_report(tmp_path)
    assert done.returncode == EXIT[report.verdict], done.stderr[-2000:]
    assert report.sentence in done.stdout
    assert [file for file in FILES if not (tmp_path / file).is_file()] == []
    bound = bind(load_recipe(Path(name), changes), trust_code=False)
    assert {candidate.scheme for candidate in report.candidates} == {*bound.schemes, *(["mixed"] if bound.plan is not None else [])}
    assert any(candidate.status == "measured" for candidate in report.candidates)
    for candidate in report.candidates:
        if candidate.status != "measured":
            assert candidate.reason, f"{candidate.scheme} does not say why it was not measured"
            continue
        assert candidate.verdict in EXIT
        assert len(candidate.gates) == len(load_recipe(Path(name)).recipe.gate)
        assert all(gate.verdict.samples == report.baseline.samples for gate in candidate.gates)
        assert candidate.audit
        files = {file: digest_of_file(tmp_path / candidate.artifact / file) for file in candidate.files}
        assert files == dict(candidate.files)
