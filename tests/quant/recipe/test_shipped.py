"""Shipped recipes by name."""

from pathlib import Path

import pytest

import quant
from quant.errors import RecipeError
from quant.recipe.shipped import find_recipe, shipped


def test_shipped_recipes_are_the_yaml_files_beside_the_program():
    folder = Path(quant.__file__).parent.parent / "recipes"
    assert shipped() == {path.stem: path for path in folder.glob("*.yaml")}
    assert list(shipped()) == sorted(shipped())


@pytest.mark.usefixtures("minimal")
@pytest.mark.parametrize("name", ["text-sentiment", "text-sentiment.yaml", "recipes/text-sentiment.yaml", "recipes/text-sentiment", Path("text-sentiment")])
def test_a_shipped_recipe_is_found_by_name(shipped_folder, name):
    assert find_recipe(name) == shipped_folder / "text-sentiment.yaml"


def test_a_file_that_exists_wins_and_a_folder_does_not(shipped_folder, write):
    Path("text-sentiment").mkdir(parents=True, exist_ok=True)
    assert find_recipe("text-sentiment") == shipped_folder / "text-sentiment.yaml"
    path = write("version: 1", "text-sentiment.yaml")
    assert find_recipe("text-sentiment.yaml") == path


def test_a_relative_path_starts_at_the_given_folder(write):
    write("version: 1", "folder/a.yaml")
    assert find_recipe("a.yaml", folder=Path("folder")) == Path("folder/a.yaml")


@pytest.mark.usefixtures("shipped_folder", "minimal")
def test_a_missing_recipe_names_the_nearest():
    with pytest.raises(RecipeError, match=r"^text-sentimnet: no such recipe\nhint: did you mean 'text-sentiment'\?$"):
        find_recipe("text-sentimnet")
    with pytest.raises(RecipeError, match=r"^minmal.yaml: no such recipe\nhint: did you mean 'minimal.yaml'\?$"):
        find_recipe("minmal.yaml")
    with pytest.raises(RecipeError, match=r"^no/such/zzz: no such recipe\nhint: known: text-sentiment$"):
        find_recipe("no/such/zzz")
    with pytest.raises(RecipeError, match=r"^elsewhere/text-sentiment.yaml: no such recipe\nhint: did you mean 'text-sentiment'\?$"):
        find_recipe("elsewhere/text-sentiment.yaml")


@pytest.mark.usefixtures("shipped_folder")
def test_a_folder_is_no_recipe(write):
    write("version: 1", "folder/a.yaml")
    with pytest.raises(RecipeError, match=r"^folder: is a folder, not a recipe\nhint: in it: a.yaml$"):
        find_recipe("folder")
    Path("empty").mkdir()
    with pytest.raises(RecipeError, match=r"^empty: is a folder, not a recipe\nhint: name a YAML file$"):
        find_recipe("empty")
