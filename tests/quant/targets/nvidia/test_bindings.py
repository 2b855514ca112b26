"""Every name of TensorRT that the code speaks exists in the bindings of versions 10 and 11; they are imported with stub libraries, without TensorRT."""

import ast
import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import get_args

import pytest

from quant.targets import TARGETS
from quant.targets.nvidia import engine_host

HOST = Path(engine_host.__file__).parent
CLASSES = {
    "builder": "Builder",
    "network": "INetworkDefinition",
    "parser": "OnnxParser",
    "config": "IBuilderConfig",
    "shapes": "IOptimizationProfile",
    "cache": "ITimingCache",
    "error": "ParserError",
    "runtime": "Runtime",
    "engine": "ICudaEngine",
    "_engine": "ICudaEngine",
    "context": "IExecutionContext",
    "_context": "IExecutionContext",
    "inspector": "EngineInspector",
    "refitter": "Refitter",
    "onnx_refitter": "OnnxParserRefitter",
}
"""What the code calls a thing -> TensorRT's class of it; the same in every file, which is what makes this test possible."""
FILES = ("building.py", "loading.py", "running.py")
RTX_ONLY = {"IBuilderConfig.num_compute_capabilities", "IBuilderConfig.set_compute_capability", "ComputeCapability"}
"""What only TensorRT-RTX is asked for."""
STUBS = ("createInferBuilder_INTERNAL", "createInferRefitter_INTERNAL", "createInferRuntime_INTERNAL", "getBuilderPluginRegistry", "getPluginRegistry")
STUBS += ("initLibNvInferPlugins", "createNvOnnxParser_INTERNAL", "createNvOnnxParserRefitter_INTERNAL", "getNvOnnxParserVersion")


def spoken(source):
    """Dotted names of TensorRT in a file: `Builder.create_network`, `BuilderFlag.TF32`."""
    found = set()
    for node in ast.walk(ast.parse(source)):
        if not isinstance(node, ast.Attribute):
            continue
        base = node.value
        name = base.id if isinstance(base, ast.Name) else base.attr if isinstance(base, ast.Attribute) else None
        if name in {"trt", "_trt"}:
            found.add(node.attr)
        elif isinstance(base, ast.Attribute) and isinstance(base.value, ast.Name | ast.Attribute) and _title(base.value) in {"trt", "_trt"}:
            found.add(f"{base.attr}.{node.attr}")
        elif name in CLASSES:
            found.add(f"{CLASSES[name]}.{node.attr}")
    return found


def _title(node):
    return node.id if isinstance(node, ast.Name) else node.attr


def all_spoken():
    found = set().union(*(spoken((HOST / name).read_text(encoding="utf-8")) for name in FILES))
    flags = ast.literal_eval(next(n.value for n in ast.parse((HOST / "building.py").read_text(encoding="utf-8")).body if _assigns(n, "_FLAGS")))
    found |= {f"BuilderFlag.{flag.upper()}" for flag in flags}
    levels = get_args(TARGETS.get("tensorrt").Options.model_fields["hardware_compatibility_level"].annotation)
    return found | {f"HardwareCompatibilityLevel.{level.upper()}" for level in levels}


def _assigns(node, name):
    return isinstance(node, ast.Assign) and getattr(node.targets[0], "id", None) == name


def test_names_are_found_however_they_are_written():
    source = "config.set_flag(trt.BuilderFlag.TF32); self._trt.Refitter(self._engine, 1); self._context.execute_async_v3(s); other.thing"
    expected = {"IBuilderConfig.set_flag", "BuilderFlag", "BuilderFlag.TF32", "Refitter", "IExecutionContext.execute_async_v3"}
    assert spoken(source) == expected


def test_the_names_that_matter_are_among_those_found():
    found = all_spoken()
    assert {"Builder.build_serialized_network", "BuilderFlag.WEIGHT_STREAMING", "ICudaEngine.create_engine_inspector", "Runtime"} <= found
    assert {"IExecutionContext.execute_async_v3", "OnnxParserRefitter.refit_from_file", "ITimingCache.serialize", "ILogger"} <= found
    assert len(found) > 50


@pytest.mark.slow
@pytest.mark.network
@pytest.mark.skipif(sys.platform != "linux" or shutil.which("cc") is None, reason="stub libraries are made by a C compiler, for Linux")
@pytest.mark.parametrize(("package", "version"), [("tensorrt-cu13-bindings", "11.4.0.106"), ("tensorrt-cu12-bindings", "10.13.3.9")])
def test_every_name_exists_in_the_bindings(tmp_path, package, version):
    folder, libraries = tmp_path / "site", tmp_path / "libraries"
    libraries.mkdir()
    command = [sys.executable, "-m", "pip", "install", "--no-deps", "--only-binary=:all:", "--quiet", "--target", folder, f"{package}=={version}"]
    subprocess.run(command, check=True, capture_output=True)
    (libraries / "stub.c").write_text("\n".join(f"void *{name}(void) {{ return 0; }}" for name in STUBS), encoding="utf-8")
    for library in ("nvinfer", "nvinfer_plugin", "nvonnxparser"):
        name = f"lib{library}.so.{version.partition('.')[0]}"
        subprocess.run(["cc", "-shared", "-fPIC", f"-Wl,-soname,{name}", "-o", libraries / name, libraries / "stub.c"], check=True)
    (module,) = {p.parent.name for p in folder.glob("tensorrt*/*.so")}
    names = sorted(all_spoken() - RTX_ONLY)
    script = "import ctypes, functools, importlib, json, sys\n"
    script += f"for name in {[str(p) for p in sorted(libraries.glob('*.so.*'))]!r}: ctypes.CDLL(name, mode=ctypes.RTLD_GLOBAL)\n"
    script += f"trt = importlib.import_module({module!r})\n"
    script += "def known(name):\n    try: functools.reduce(getattr, name.split('.'), trt)\n    except AttributeError: return False\n    return True\n"
    script += f"print(json.dumps([trt.__version__, [name for name in json.loads({json.dumps(names)!r}) if not known(name)]]))"
    environment = {"PYTHONPATH": str(folder), "LD_LIBRARY_PATH": str(libraries), "PATH": "/usr/bin:/bin"}
    done = subprocess.run([sys.executable, "-c", script], check=False, capture_output=True, text=True, env=environment)
    assert done.returncode == 0, done.stderr
    found, unknown = json.loads(done.stdout)
    assert (found, unknown) == (version, [])
