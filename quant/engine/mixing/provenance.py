"""What a sensitivity profile was made from: kept in it, and held to what there is now before a plan is made of it elsewhere."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from quant.core.dialect import Dialect
from quant.core.digest import digest_of
from quant.core.sensitivity import SensitivityProfile
from quant.engine.cache import code_digest, library_versions
from quant.engine.mixing.ground import Ground
from quant.errors import PlanError

_SAID = {
    "model": "is of another model",
    "samples": "was found on other search samples",
    "calibration": "was calibrated on other samples",
    "options": "was made with other options of schemes, calibrator or estimator",
    "libraries": "was made with other versions of libraries",
    "code": "was made by another version of this toolkit",
}
_CODES, _PLACES = "codes", "places"
_MOST = 1e30
"""Effects are shares, or nats: nothing that was measured comes near this, and a program of planning cannot weigh it against the others."""


def provenance(ground: Ground, samples: str) -> dict[str, str]:
    """Key -> what a profile depends on, apart from the target: digests, and the codes that the target's dialect writes in words.

    Args:
        ground: What plans of the target stand on.
        samples: Digest of the search samples.
    """
    recipe = ground.workshop.bound.loaded.recipe
    plan = recipe.plan
    assert plan is not None, "a recipe with a plan"
    told = [ground.key_of_schemes, recipe.calibration.model_dump(mode="json"), plan.estimator.model_dump(mode="json"), plan.samples]
    roles = ground.workshop.prepared.data.roles
    return {
        "model": ground.workshop.prepared.digest,
        "samples": samples,
        "calibration": roles["calibration"].digest if "calibration" in roles else "",
        "options": digest_of(told),
        "libraries": digest_of(library_versions()),
        "code": code_digest(),
        _CODES: codes_of(ground.engine.dialect, dynamic=any(ground.workshop.bound.schemes[title].data == "none" for title in ground.titles.values())),
        _PLACES: digest_of(_places(ground.engine.dialect)),
    }


def check_effects(profile: SensitivityProfile, path: Path, formats: Mapping[str, Sequence[str]], *, target: str) -> None:
    """Hold the effects of a saved profile to what is to be planned.

    Args:
        profile: The profile.
        path: Where it lies.
        formats: Layer -> the formats that it may run in.
        target: Title of the target.

    Raises:
        PlanError: One is missing, or is no number that others can be compared with.
    """
    where, again = str(path), f"`quant profile RECIPE --target {target} --output {path.name}` makes it anew"
    for layer, name in ((layer, name) for layer, names in formats.items() for name in names):
        if not profile.knows(layer, name):
            raise PlanError(f"has no effect of layer {layer!r} in {name}", where=where, hint=again)
        found = profile.effect(layer, name)
        if not (abs(found.value) < _MOST and 0 <= found.standard_error < _MOST):
            raise PlanError(f"the effect of layer {layer!r} in {name} is {found.value:g} ± {found.standard_error:g}", where=where, hint=again)


def _places(dialect: Dialect) -> list[object]:
    """What says where quantizers of activations stand."""
    return [sorted(dialect.chained), sorted(dialect.transparent), sorted(dialect.melting), sorted(dialect.known), dialect.residual]


def codes_of(dialect: Dialect, *, dynamic: bool = False) -> str:
    """The grids of a dialect, on which it depends what rounding does.

    Args:
        dialect: The dialect.
        dynamic: Whether ranges are found while running, by some scheme.

    Example:
        >>> from quant.targets import TARGETS
        >>> codes_of(TARGETS.make("tensorrt").dialect)
        'int8 symmetric activations, int8 symmetric weights'
    """
    grids = {"activations": dialect.activations, "weights": dialect.weights}
    if dialect.operands != dialect.activations:
        grids["right operands"] = dialect.operands
    if dialect.left_operands is not None and dialect.left_operands != dialect.activations:
        grids["left operands"] = dialect.left_operands
    if dynamic and dialect.dynamic_group:
        grids["dynamic ranges by groups"] = dialect.activations
    return ", ".join(f"{'int8' if grid.low < 0 else 'uint8'}{' symmetric' if grid.symmetric else ''} {what}" for what, grid in grids.items())


def check_profile(profile: SensitivityProfile, path: Path, *, now: Mapping[str, str], target: str) -> None:
    """Hold a saved profile to what there is now.

    Args:
        profile: The profile.
        path: Where it lies.
        now: `provenance` of the target that it is to be priced for.
        target: Title of that target.

    Raises:
        PlanError: It is of another model, of other data, options or versions; or its target writes other codes, so that its effects are others there.
    """
    where, again = str(path), f"`quant profile RECIPE --target {target} --output {path.name}` makes it anew"
    if missing := [key for key in now if key not in profile.keys]:
        raise PlanError(f"does not say what it was made from ({missing[0]} is missing)", where=where, hint=again)
    for key, told in _SAID.items():
        was, is_now = profile.keys[key], now[key]
        if was != is_now:
            raise PlanError(f"{told} ({was[:12] or 'none'}…, and now it is {is_now[:12] or 'none'}…)", where=where, hint=again)
    if profile.keys[_CODES] != now[_CODES]:
        what = f"its effects are those of {profile.keys[_CODES]}, and {target} has {now[_CODES]}: what rounding does is not the same there"
        raise PlanError(what, where=where, hint=again)
    if profile.keys[_PLACES] != now[_PLACES]:
        raise PlanError(f"its target rounds activations at other places than {target} does, so that effects are not the same there", where=where, hint=again)
