"""What a streamed chunk costs Specwatch's client in CPU, and how late it is seen, beside other tools that read streams.

    python benchmarks/client.py [--streams 1,16,64,128] [--repeats 3] [--install]
                                [--vllm PYTHON] [--guidellm PYTHON] [--aiperf PYTHON]

One server, a process of its own, sends each stream a chunk every 20 ms. Every tool reads the same streams twice, with
few chunks and with many: what the second costs more, in all processes of the tool, is what chunks cost; starting and
ending drop out. Repeats go round the tools, so that all of them meet the same neighbours; medians are printed.

Late is how far an inter-chunk time is from the 20 ms, as the tool itself reports it; the line `the server` is what the
server was late by its own clock, below which no client can be seen.

PYTHON is an interpreter that has the tool; SPECWATCH_VLLM_PYTHON, SPECWATCH_GUIDELLM_PYTHON and SPECWATCH_AIPERF_PYTHON
say the same. `--install` makes the environments of guidellm (6 GB) and AIPerf (1.2 GB) in .cache/clients. Tools that
are not there are left out, and that is said. A single stream is too little work to tell the tools apart.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.request import urlopen

from stage import machine, processes
from stage.clients import REPOSITORY, AiPerf, ClientTool, Gaps, GuideLlm, Load, Specwatch, VllmBench
from stage.fleet import free_port

if TYPE_CHECKING:
    from collections.abc import Iterable

INTERVAL_SECONDS = 0.02
CHUNKS = {1: (20, 620), 16: (20, 620), 64: (20, 520), 128: (20, 320)}
"""Few and many, by streams: as many as make the difference larger than what start-up varies by."""
ENVIRONMENTS = REPOSITORY / ".cache/clients"
VLLM = REPOSITORY / ".venv-vllm"
"""Where tests/real/install.py puts it."""
OTHERS: tuple[tuple[str, type[ClientTool]], ...] = (("vllm", VllmBench), ("guidellm", GuideLlm), ("aiperf", AiPerf))


@dataclass(frozen=True)
class Late:
    """Milliseconds by which chunks were late: half of them by no more than `p50`, 99 of 100 by no more than `p99`."""

    p50: float
    p99: float


@dataclass(frozen=True)
class Figures:
    """One measurement of one tool."""

    microseconds: float
    late: Late | None
    server_late: Late


def main() -> None:
    options = _options()
    tools = [Specwatch(Path(sys.executable)), *_others(options)]
    print(f"{machine.described()}; load {machine.load()}; a chunk every {INTERVAL_SECONDS * 1000:g} ms")
    port, found = free_port(), defaultdict[tuple[int, str], list[Figures]](list)
    server = (str(Path(__file__).with_name("stage") / "paced.py"), str(port), str(INTERVAL_SECONDS))
    with tempfile.TemporaryDirectory() as name:
        folder, url = Path(name), f"http://127.0.0.1:{port}"
        with processes.python(*server, log=folder / "server.log", environment={"PYTHONPATH": str(REPOSITORY)}):
            processes.wait_for(f"{url}/health")
            for repeat in range(options.repeats):
                for streams in options.streams:
                    for tool in tools:
                        figures = measured(tool, url, streams, Path(tempfile.mkdtemp(dir=folder)))
                        found[streams, tool.name].append(figures)
                        print(f"  {repeat + 1}: {streams} × {tool.name}: {figures}", file=sys.stderr)
    for streams in options.streams:
        _print_table(streams, {tool.name: found[streams, tool.name] for tool in tools})
    print(f"load at the end {machine.load()}")


def measured(tool: ClientTool, url: str, streams: int, folder: Path) -> Figures:
    """The marginal CPU of a chunk, and the lateness in the run with many chunks."""
    few, many = CHUNKS[streams]
    cost_of_few, _ = _cpu_seconds(tool, Load(url, streams, few), folder)
    _server_late(url)
    cost_of_many, gaps = _cpu_seconds(tool, Load(url, streams, many), folder)
    microseconds = (cost_of_many - cost_of_few) / (streams * (many - few)) * 1e6
    return Figures(microseconds, gaps and _late(gaps, many), _server_late(url))


def _cpu_seconds(tool: ClientTool, load: Load, folder: Path) -> tuple[float, Gaps | None]:
    """User and system time of the tool and all processes that it waited for, and the gaps it reports."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    gaps = tool.run(load, folder)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime, gaps


def _late(gaps: Gaps, chunks: int) -> Late:
    """Without what some tools count after the last chunk: the events that end the stream come together with it."""
    return _percentiles(abs(gap - INTERVAL_SECONDS) for stream in gaps for gap in stream[: chunks - 1])


def _server_late(url: str) -> Late:
    """Since it was last asked."""
    with urlopen(f"{url}/lateness") as answer:
        return _percentiles(json.load(answer))


def _percentiles(seconds: Iterable[float]) -> Late:
    cuts = statistics.quantiles(seconds, n=100)
    return Late(cuts[49] * 1000, cuts[98] * 1000)


def _print_table(streams: int, found: dict[str, list[Figures]]) -> None:
    own = statistics.median(figures.microseconds for figures in found[Specwatch.name])
    print(f"\n{streams} streams, chunks {CHUNKS[streams][0]} and {CHUNKS[streams][1]}")
    print("| client | CPU µs/chunk | least–most | to ours | late p50 | late p99 |")
    print("| --- | --- | --- | --- | --- | --- |")
    for name, several in found.items():
        costs = [figures.microseconds for figures in several]
        median = statistics.median(costs)
        late = _medians([figures.late for figures in several if figures.late])
        print(f"| {name} | {median:.0f} | {min(costs):.0f}–{max(costs):.0f} | {median / own:.1f} | {late} |")
    print(f"| the server | | | | {_medians([f.server_late for several in found.values() for f in several])} |")


def _medians(several: list[Late]) -> str:
    if not several:
        return "not told | not told"
    p50, p99 = (statistics.median(values) for values in zip(*((late.p50, late.p99) for late in several), strict=True))
    return f"{p50:.2f} ms | {p99:.1f} ms"


def _others(options: argparse.Namespace) -> Iterable[ClientTool]:
    for key, kind in OTHERS:
        given: Path | None = getattr(options, key)
        tool = kind(given or (VLLM if kind is VllmBench else ENVIRONMENTS / key) / "bin/python")
        if given is None and options.install and kind.requirement is not None and not tool.is_installed():
            _install(ENVIRONMENTS / key, kind.requirement)
        if tool.is_installed():
            yield tool
        else:
            why = f"{given} has no {kind.module}" if given else f"see --{key} and --install"
            print(f"*** {kind.name}: LEFT OUT ({why})")


def _install(environment: Path, requirement: str) -> None:
    print(f"installing {requirement} into {environment}")
    subprocess.run([sys.executable, "-m", "venv", environment], check=True)
    subprocess.run([environment / "bin/python", "-m", "pip", "--quiet", "install", requirement], check=False)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--streams", type=_streams, default=list(CHUNKS))
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--install", action="store_true")
    for key, kind in OTHERS:
        given = os.environ.get(f"SPECWATCH_{key.upper()}_PYTHON") or None
        parser.add_argument(f"--{key}", type=Path, default=given, metavar="PYTHON", help=kind.name)
    return parser.parse_args()


def _streams(text: str) -> list[int]:
    chosen = [int(part) for part in text.split(",")]
    if unknown := set(chosen) - CHUNKS.keys():
        raise argparse.ArgumentTypeError(f"no such number of streams: {unknown}; known: {list(CHUNKS)}")
    return chosen


if __name__ == "__main__":
    main()
