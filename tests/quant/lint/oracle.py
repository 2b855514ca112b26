"""TensorRT-RTX in a process of its own: reads a JSON line {"model", "capability"}, answers with what it said. Needs no GPU.

A process of its own, because its logger is one for the whole process, and because it can crash on a graph.
"""

import json
import subprocess
import sys


class Oracle:
    """Asks TensorRT-RTX about one file at a time."""

    def __init__(self):
        self._start()

    def _start(self):
        self.process = subprocess.Popen([sys.executable, __file__], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)

    def ask(self, path, capability="SM89"):
        """What it says: `accepted`, `said` (errors and warnings), `layers` (one line each); a crash is told as such."""
        self.process.stdin.write(json.dumps({"model": str(path), "capability": capability}) + "\n")
        self.process.stdin.flush()
        line = self.process.stdout.readline()
        if not line:
            self.process.wait()
            self.close()
            self._start()
            return {"accepted": False, "said": "crashed", "layers": []}
        return json.loads(line)

    def close(self):
        """End the process."""
        self.process.stdin.close()
        self.process.stdout.close()
        self.process.wait()


def _answer(trt, log, path, capability):
    log.lines.clear()
    builder = trt.Builder(log)
    network = builder.create_network(0)
    parser = trt.OnnxParser(network, log)
    accepted = parser.parse_from_file(path)
    said = [parser.get_error(i).desc() for i in range(parser.num_errors)]
    if accepted:
        config = builder.create_builder_config()
        config.profiling_verbosity = trt.ProfilingVerbosity.DETAILED
        config.num_compute_capabilities = 1
        config.set_compute_capability(getattr(trt.ComputeCapability, capability), 0)
        accepted = builder.build_serialized_network(network, config) is not None
    said += [message for severity, message in log.lines if severity in {"WARNING", "ERROR", "INTERNAL_ERROR"}]
    listed = next((message for _, message in log.lines if message.startswith("Layers:")), "").split("I/O Tensors:")[0]
    return {"accepted": accepted, "said": "\n".join(said), "layers": [line for line in listed.splitlines() if "LayerType" in line]}


def _serve():
    import tensorrt_rtx as trt

    class Log(trt.ILogger):
        def __init__(self):
            super().__init__()
            self.lines = []

        def log(self, severity, message):
            self.lines.append((str(severity).rsplit(".", 1)[-1], message))

    log = Log()
    for line in sys.stdin:
        question = json.loads(line)
        print(json.dumps(_answer(trt, log, question["model"], question["capability"])), flush=True)


if __name__ == "__main__":
    _serve()
