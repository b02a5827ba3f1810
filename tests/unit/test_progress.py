from __future__ import annotations

from monitor.cli.progress import Progress


def test_where_no_terminal_is_each_point_that_is_done_is_a_line_with_whether_it_is_measured_and_the_time_left(capsys):
    now = iter([0.0, 30.0, 400.0])
    progress = Progress(40, "requests", monotonic=lambda: next(now))
    for concurrency, requests in ((1, 10), (16, 30)):
        for _ in range(requests):
            progress.sample_done(None)
        progress.point_done(concurrency, concurrency == 1)
    shown = capsys.readouterr()
    assert shown.out == ""
    assert shown.err.splitlines() == [
        "concurrency 1 is measured: 10 of 40 requests in 30s, at most about 1m30s left",
        "concurrency 16 cannot be measured: 40 of 40 requests in 7m",
    ]


def test_a_probe_has_a_line_for_each_domain_that_is_done(capsys):
    now = iter([0.0, 6.0])
    progress = Progress(48, "prompts", monotonic=lambda: next(now))
    for _ in range(24):
        progress.sample_done(None)
    progress.part_done("math")
    assert capsys.readouterr().err == "math is measured: 24 of 48 prompts in 6s, at most about 6s left\n"


def test_a_domain_of_which_no_prompt_was_valid_is_not_said_to_be_measured(capsys):
    now = iter([0.0, 6.0])
    progress = Progress(2, "prompts", monotonic=lambda: next(now))
    for _ in range(2):
        progress.sample_done(None)
    progress.part_done("math", measured=False)
    assert capsys.readouterr().err == "math cannot be measured: 2 of 2 prompts in 6s\n"
