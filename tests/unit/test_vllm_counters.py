"""Counters of captured shapes of the metrics page, with exact figures."""

from __future__ import annotations

from pathlib import Path

import pytest

from monitor.core.figures import acceptance_length, acceptance_rate, survival
from monitor.core.records import Counts
from monitor.engines.counters import Change, Counters, difference
from monitor.engines.failures import failure
from monitor.engines.vllm import VllmEngine
from monitor.engines.vllm_counters import counters_in
from monitor.engines.vllm_metrics import is_lazy, load_of, of_rank, parse
from monitor.errors import TargetError
from tests.engines import FixtureReplica, now

PAGES = Path(__file__).parents[1] / "fixtures/metrics"
CAPTURES = Path(__file__).parents[2].parent / "shared/fixtures/vllm-0.32.0"
URL = "http://vllm:8000"
ALONE = Change(
    steps=600,
    drafted=1800,
    accepted=714,
    accepted_at=(370, 216, 128),
    generated_tokens=1314,
    prompt_tokens=420,
    preemptions=0,
)


def page(name: str) -> str:
    return (PAGES / f"{name}.txt").read_text(encoding="utf-8")


def counters_of(text: str, model: str, url: str, rank: int | None = None) -> Counters:
    return counters_in(parse(text), model, url, rank, lazy=is_lazy(text))


def change_of(before: str, after: str, model: str = "chat") -> Change:
    """Between two pages, given as texts."""
    return difference(counters_of(before, model, URL), counters_of(after, model, URL), URL)


def moved(name: str, model: str = "chat") -> Change:
    return change_of(page(f"{name}_before"), page(f"{name}_after"), model)


def refusal(before: str, after: str) -> TargetError:
    with pytest.raises(TargetError) as caught:
        change_of(before, after)
    assert str(caught.value).startswith(URL)
    return caught.value


class TestPages:
    def test_of_one_rank_only_its_own_engine_counts(self):
        before, after = page("data_parallel_before"), page("data_parallel_after")
        changes = [
            difference(counters_of(before, "chat", URL, rank), counters_of(after, "chat", URL, rank), URL)
            for rank in (0, 1)
        ]
        assert sum(change.steps for change in changes) == 800
        assert [change.contradiction() for change in changes] == [None, None]
        assert (changes[0].preemptions, changes[1].preemptions) == (0, 1)
        assert changes[0].steps != changes[1].steps

    def test_a_rank_that_the_page_does_not_count_is_refused_with_those_it_does(self):
        with pytest.raises(TargetError, match="the page counts engines 0, 1, and no rank 2") as caught:
            counters_of(page("data_parallel_after"), "chat", URL, 2)
        assert caught.value.reason == "no_counters"

    def test_where_series_appear_with_their_first_count_a_rank_without_any_stands_at_zero(self):
        before, after = (counters_of(page(f"rust_{when}"), "chat", URL, 7) for when in ("before", "after"))
        assert difference(before, after, URL).generated_tokens == 0

    def test_load_is_that_of_the_rank(self):
        metrics = parse(page("data_parallel_after"))
        assert [load_of(of_rank(metrics, rank)).preemptions for rank in (0, 1, None)] == [0, 3, 3]

    def test_a_glance_at_a_rank_has_its_load_and_its_counters(self):
        replica = FixtureReplica("openai", {"/metrics": page("data_parallel_after")}, data_parallel_rank=1)
        glance = now(VllmEngine().glance(replica, "chat"))
        assert isinstance(glance.counters, Counters)
        assert glance.load.preemptions == 3
        assert {dict(series.labels)["engine"] for series in glance.counters.series} == {"1"}

    @pytest.mark.parametrize(
        ("why", "answered", "reason", "said"),
        [
            ("not_found", "answered 404", "no_counters", "there is no /metrics; a gateway in front may hide it"),
            ("server_error", "answered 500", "server_error", "answered 500; look at the server's log"),
        ],
    )
    def test_a_page_that_is_broken_is_not_said_to_be_missing(self, why, answered, reason, said):
        class Refusing(FixtureReplica):
            async def get_text(self, path: str) -> str:
                raise failure(why, self.url + path, answered)

        found = now(VllmEngine().glance(Refusing("openai"), "chat")).counters
        assert isinstance(found, TargetError)
        assert (found.reason, said in str(found)) == (reason, True)

    def test_two_engines_are_added_up(self):
        change = moved("data_parallel")
        assert change == Change(800, 2400, 800, (430, 236, 134), 1600, 590, 1)
        assert change.histogram == (370, 194, 102, 134)
        counts = Counts(change.steps, change.drafted, change.accepted, change.histogram, change.steps)
        assert acceptance_length(counts) == 2.0
        assert acceptance_rate(counts) == pytest.approx(1 / 3)
        assert survival(counts) == pytest.approx((0.5375, 0.295, 0.1675))
        assert change.contradiction() is None

    def test_a_multiprocess_page_has_no_start_time_and_no_created_series(self):
        text = page("multiprocess_before")
        assert "_created" not in text
        assert "process_start_time_seconds" not in text
        assert moved("multiprocess") == Change(600, 1800, 714, (370, 216, 128), 1314, 420, 1)

    def test_families_that_the_rust_front_end_does_not_show_yet_stand_at_zero(self):
        assert moved("rust", 'models\\chat "v2"') == ALONE

    def test_ray_renames_everything_and_a_replica_may_appear(self):
        assert moved("ray") == Change(800, 2400, 800, (430, 236, 134), 1600, 590, 0)
        assert load_of(parse(page("ray_after"))).running == 0.0

    @pytest.mark.parametrize("prefix", ["ray_vllm:", "vllm_", "ray_vllm_"])
    def test_of_rays_names_there_are_several_spellings(self, prefix):
        before, after = (page(f"ray_{when}").replace("ray_vllm_", prefix) for when in ("before", "after"))
        if prefix == "vllm_":
            with pytest.raises(TargetError, match="shows no counters of vLLM"):
                change_of(before, after)
        else:
            assert change_of(before, after).steps == 800
            bare = [text.replace("_total{", "{") for text in (before, after)]
            assert change_of(*bare).steps == 800

    def test_labels_may_stand_in_any_order_and_numbers_in_any_form(self):
        before, after = page("multiprocess_before"), page("multiprocess_after")
        turned = after.replace('engine="0",model_name="chat"', 'model_name="chat",engine="0"').replace(
            " 1600.0\n", " 1.6e+03\n"
        )
        assert turned != after
        assert change_of(before, turned) == change_of(before, after)

    def test_of_several_models_only_the_one_asked_for_counts(self):
        def both(when: str) -> str:
            other = page(f"data_parallel_{when}").replace('model_name="chat"', 'model_name="other"')
            return page(f"multiprocess_{when}") + other

        assert change_of(both("before"), both("after"), "chat").steps == 600
        assert change_of(both("before"), both("after"), "other").steps == 800
        with pytest.raises(TargetError, match=r"several models, none named 'x': \['chat', 'other'\]"):
            counters_of(both("before"), "x", URL)

    def test_the_only_model_counts_under_whatever_name_it_has(self):
        assert change_of(page("multiprocess_before"), page("multiprocess_after"), "an-alias").steps == 600

    def test_v0_is_refused_with_the_reason(self):
        with pytest.raises(TargetError, match="V0 engine, which add up running totals and count too much") as caught:
            counters_of(page("v0"), "chat", URL)
        assert caught.value.reason == "no_counters"

    @pytest.mark.parametrize("text", ["", "python_info 1.0\n", "<html></html>", "vllm:num_requests_running 1\n"])
    def test_a_page_without_token_counters_is_refused(self, text):
        with pytest.raises(TargetError, match="no counters of vLLM; --disable-log-stats hides them") as caught:
            counters_of(text, "chat", URL)
        assert caught.value.reason == "no_counters"

    def test_a_page_of_python_without_speculation_moves_by_no_step(self):
        lines = [line for line in page("multiprocess_after").splitlines() if "spec_decode" not in line]
        change = change_of("\n".join(lines), "\n".join(lines))
        assert (change.steps, change.histogram, change.contradiction()) == (0, (), None)


class TestOneServer:
    def test_a_new_start_time_is_a_restart(self):
        error = refusal(page("data_parallel_before"), page("data_parallel_restarted"))
        assert error.reason == "counters_reset"
        assert "start time changed" in str(error)

    def test_an_older_start_time_is_another_server(self):
        error = refusal(page("data_parallel_restarted"), page("data_parallel_before"))
        assert error.reason == "load_balancer"
        assert "a server started 105 s before the first's" in str(error)

    def test_without_a_start_time_any_decrease_is_a_reset(self):
        error = refusal(page("multiprocess_before"), page("multiprocess_restarted"))
        assert error.reason == "counters_reset"
        assert "steps (engine 0, model_name chat) fell from 1000 to 90" in str(error)

    def test_one_engine_that_falls_is_not_hidden_by_another_that_rises(self):
        after = page("data_parallel_after").replace(
            'num_drafts_total{engine="1",model_name="chat"} 1000.0',
            'num_drafts_total{engine="1",model_name="chat"} 799.0',
        )
        error = refusal(page("data_parallel_before"), after)
        assert "steps (engine 1, model_name chat) fell from 800 to 799" in str(error)

    def test_other_engines_are_other_servers(self):
        error = refusal(page("multiprocess_before"), page("data_parallel_after"))
        assert error.reason == "load_balancer"
        assert "(engine 1, model_name chat) is new" in str(error)

    def test_lazy_series_that_vanish_are_a_reset(self):
        assert refusal(page("rust_after"), page("rust_before")).reason == "counters_reset"
        assert refusal(page("ray_after"), page("ray_before")).reason == "counters_reset"


class TestIdentity:
    def test_positions_of_one_engine_for_all_contradict_the_accepted_tokens(self):
        """What an exporter shows that keeps one engine's positions instead of adding them up."""
        before, after = (
            "\n".join(
                line for line in page(f"data_parallel_{when}").splitlines()
                if "per_pos_total{" not in line or 'engine="0"' in line
            )
            for when in ("before", "after")
        )  # fmt: skip
        contradiction = change_of(before, after).contradiction()
        assert contradiction is not None
        assert contradiction.startswith("800 tokens were accepted, but the positions add up to 714, so AL is not 1 + Σ")
        assert "known to be wrong under data parallelism" in contradiction

    @pytest.mark.parametrize(
        ("change", "words"),
        [
            (Change(10, 40, 12, (5, 7), 30, 1, 0), r"of 10 steps \[5, 7\] reached each position, which cannot rise"),
            (Change(4, 40, 12, (6, 6), 30, 1, 0), "which cannot rise"),
            (Change(10, 8, 12, (7, 5), 30, 1, 0), "12 tokens were accepted of 8 drafted"),
        ],
    )
    def test_counts_that_cannot_be_are_told(self, change, words):
        with pytest.raises(AssertionError, match=words):
            assert change.contradiction() is None, change.contradiction()


@pytest.mark.skipif(not CAPTURES.is_dir(), reason="the captures of a real server are not beside this checkout")
def test_the_counters_of_real_servers_hold_their_identity():
    found = {}
    for name in ("dp2", "draft", "eagle", "ngram", "suffix"):
        before, after = ((CAPTURES / name / f"metrics_{when}.txt").read_text() for when in ("idle", "after"))
        change = change_of(before, after, "tiny")
        assert change.contradiction() is None
        found[name] = (change.steps, change.drafted, change.accepted, change.generated_tokens)
    assert found == {
        "dp2": (1998, 7992, 4184, 6144),
        "draft": (37917, 151668, 70879, 108347),
        "eagle": (65264, 195792, 41154, 106702),
        "ngram": (24942, 96579, 48188, 112655),
        "suffix": (15924, 104970, 92780, 107864),
    }
