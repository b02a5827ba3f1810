"""The clients that are measured against each other: how each is told to read so many streams, and what it saw."""

import json
import os
import subprocess
import sys
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

REPOSITORY = Path(__file__).parents[2]
TOKENIZER = REPOSITORY / "tests/real/models/tiny-target"
MODEL = "tiny"
PROMPT_TOKENS = 16

Gaps = list[list[float]]
"""Seconds between the chunks of each stream."""


@dataclass(frozen=True)
class Load:
    """`streams` requests at once to `url`, each of `chunks` chunks."""

    url: str
    streams: int
    chunks: int


class ClientTool(ABC):
    """A program that reads streams, run by an interpreter that has it installed."""

    name: str
    module: str
    requirement: str | None = None
    """What pip installs it from; None where pip alone cannot."""
    environment: ClassVar[Mapping[str, str]] = {}

    def __init__(self, python: Path) -> None:
        self._python = python

    def is_installed(self) -> bool:
        search = f"import importlib.util as u, sys; sys.exit(u.find_spec({self.module!r}) is None)"
        try:
            return subprocess.run([self._python, "-c", search], check=False).returncode == 0
        except OSError:
            return False

    def run(self, load: Load, folder: Path) -> Gaps | None:
        """Reads the streams to their ends; the gaps that it reports, None when it reports none one by one."""
        log = folder / "client.log"
        with log.open("wb") as output:
            command = [str(self._python), *self.arguments(load, folder)]
            environment: ClassVar = {**os.environ, **self.environment}
            ended = subprocess.run(command, cwd=folder, env=environment, stdout=output, stderr=output, check=False)
        if ended.returncode:
            sys.exit(f"{self.name} failed:\n{log.read_text()[-2000:]}")
        return self.gaps(folder)

    @abstractmethod
    def arguments(self, load: Load, folder: Path) -> list[str]:
        """What the interpreter is started with."""

    @abstractmethod
    def gaps(self, folder: Path) -> Gaps | None:
        """What was reported in `folder`."""


class Specwatch(ClientTool):
    name = "specwatch"
    module = "monitor"
    environment: ClassVar = {"PYTHONPATH": str(REPOSITORY)}

    def arguments(self, load: Load, folder: Path) -> list[str]:
        program = str(Path(__file__).with_name("own_client.py"))
        return [program, load.url, str(load.streams), str(load.chunks), str(folder / "gaps.json")]

    def gaps(self, folder: Path) -> Gaps:
        found: Gaps = json.loads((folder / "gaps.json").read_text())
        return found


class VllmBench(ClientTool):
    """`vllm bench serve`, called as a function: the command of the CPU build does not start."""

    name = "vllm bench serve"
    module = "vllm"
    environment: ClassVar = {"VLLM_NO_USAGE_STATS": "1", "HF_HUB_OFFLINE": "1", "TRANSFORMERS_OFFLINE": "1"}

    def arguments(self, load: Load, folder: Path) -> list[str]:
        call = (
            "import argparse; from vllm.benchmarks.serve import add_cli_args, main; "
            "parser = argparse.ArgumentParser(); add_cli_args(parser); main(parser.parse_args())"
        )
        options = f"""
            --backend openai-chat --base-url {load.url} --endpoint /v1/chat/completions --model {MODEL}
            --dataset-name random --random-input-len {PROMPT_TOKENS} --random-output-len {load.chunks}
            --num-prompts {load.streams} --max-concurrency {load.streams} --ignore-eos --disable-tqdm
            --save-result --save-detailed --result-filename result.json"""
        return ["-c", call, *options.split(), "--tokenizer", str(TOKENIZER), "--result-dir", str(folder)]

    def gaps(self, folder: Path) -> Gaps:
        found: Gaps = json.loads((folder / "result.json").read_text())["itls"]
        return found


class GuideLlm(ClientTool):
    """Reports one mean per request, which does not show lateness."""

    name = "guidellm"
    module = "guidellm"
    requirement = "guidellm==0.8.1"
    environment: ClassVar = {"HF_HUB_OFFLINE": "1"}

    def arguments(self, load: Load, folder: Path) -> list[str]:
        options = f"""
            --backend kind=openai_http,target={load.url},model={MODEL}
            --profile kind=concurrent,streams={load.streams}
            --constraint kind=max_requests,count={load.streams}
            --data kind=synthetic_text,prompt_tokens={PROMPT_TOKENS},output_tokens={load.chunks}
            --disable-console"""
        tokenizer, output = f"kind=hf_auto,model={TOKENIZER}", f"kind=json,path={folder / 'result.json'}"
        return ["-m", "guidellm", "run", *options.split(), "--tokenizer", tokenizer, "--output", output]

    def gaps(self, folder: Path) -> None:
        del folder


class AiPerf(ClientTool):
    name = "AIPerf"
    module = "aiperf"
    requirement = "aiperf==0.13.0"

    def arguments(self, load: Load, folder: Path) -> list[str]:
        prompts = folder / "prompts.jsonl"
        prompts.write_text("".join(json.dumps({"text": f"Prompt {n}"}) + "\n" for n in range(load.streams)))
        options = f"""
            profile --url {load.url} --model {MODEL} --endpoint-type chat --streaming
            --concurrency {load.streams} --request-count {load.streams}
            --custom-dataset-type single_turn --extra-inputs max_tokens:{load.chunks} --extra-inputs ignore_eos:true
            --ui-type none --export-level records"""
        paths = ["--input-file", str(prompts), "--tokenizer", str(TOKENIZER), "--artifact-dir", str(folder)]
        return ["-m", "aiperf", *options.split(), *paths]

    def gaps(self, folder: Path) -> Gaps:
        records = map(json.loads, (folder / "profile_export.jsonl").read_text().splitlines())
        return [[value / 1000 for value in record["metrics"]["inter_chunk_latency"]["value"]] for record in records]
