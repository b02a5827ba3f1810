"""A stand-in for `vllm serve MODEL …`: the simulator behind that command's options, with a child as vLLM has."""

from __future__ import annotations

import argparse
import json
import subprocess
import sys

parser = argparse.ArgumentParser()
parser.add_argument("model")
parser.add_argument("--host")
parser.add_argument("--port")
parser.add_argument("--speculative-config")
parser.add_argument("--per-request-spec-decode-metrics", default="none")
parser.add_argument("--die", action="store_true")
given = parser.parse_args()
print("loading", given.model, flush=True)
if given.die:
    sys.exit("CUDA out of memory")
child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
print("child", child.pid, flush=True)
config = json.loads(given.speculative_config or "null")
drafter = {"method": config["method"], "num_speculative_tokens": config["num_speculative_tokens"]} if config else None
sys.argv = ["sim", "--host", given.host, "--port", given.port, "--model", given.model]
sys.argv += ["--drafter", json.dumps(drafter) if drafter else "none"]
sys.argv += ["--per-request-counts", given.per_request_spec_decode_metrics]
sys.argv += ["--behave", '{"step_time_seconds": 0.002, "token_time_seconds": 0.0002}']
from monitor.sim.__main__ import main  # noqa: E402  (after its arguments)

main()
