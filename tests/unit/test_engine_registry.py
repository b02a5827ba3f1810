from __future__ import annotations

from typing import get_args

import pytest

from monitor.cli.probe import probe
from monitor.config.settings import Settings
from monitor.engines.registry import ENGINES, recognised
from monitor.errors import TargetError
from tests.engines import FixtureReplica, now


@pytest.mark.parametrize("engine", ["sglang", "trtllm", "llamacpp", "tgi", "openai"])
def test_each_engine_is_recognised_by_what_it_shows(engine):
    assert now(recognised(FixtureReplica(engine))) == engine


def test_vllm_is_recognised_behind_a_gateway_that_renames_its_models():
    replica = FixtureReplica("openai", {"/metrics": 'vllm:num_requests_running{engine="0"} 1.0\n'})
    assert now(recognised(replica)) == "vllm"


def test_the_metrics_page_of_any_python_server_is_no_sign_of_vllm():
    replica = FixtureReplica("openai", {"/metrics": "process_start_time_seconds 1.0\n"})
    assert now(recognised(replica)) == "openai"


def test_a_server_that_lists_no_models_is_not_recognised():
    with pytest.raises(TargetError, match="there is no /v1/models") as caught:
        now(recognised(FixtureReplica("nothing")))
    assert caught.value.reason == "not_openai"


def test_every_engine_can_be_named_in_the_shell_and_in_the_configuration():
    (option,) = [parameter for parameter in probe.params if parameter.name == "engine"]
    assert option.type.choices == ["auto", *ENGINES] or option.type.choices == ("auto", *ENGINES)
    assert get_args(Settings.model_fields["engine"].annotation) == tuple(ENGINES)
