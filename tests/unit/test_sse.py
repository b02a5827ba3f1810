from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from monitor.probing import sse
from monitor.probing.sse import EventReader


def all_events(pieces: list[bytes]) -> list[bytes]:
    reader = EventReader()
    return [event for piece in pieces for event in reader.feed(piece)]


def test_an_event_is_its_data_without_the_one_space_after_the_colon():
    assert all_events([b"data:  a\n\ndata:b\n\n"]) == [b" a", b"b"]


def test_keep_alive_comments_and_other_fields_are_left_out():
    assert all_events([b": keep-alive\n\nevent: x\nid: 7\nretry: 5\ndata: a\n\n"]) == [b"a"]


def test_data_lines_of_one_event_are_joined():
    assert all_events([b"data: a\ndata: b\n\n"]) == [b"a\nb"]


@pytest.mark.parametrize("end", [b"\n", b"\r\n", b"\r"])
def test_every_line_end_of_the_standard_is_understood(end: bytes):
    assert all_events([b"data: a" + end + end + b"data: b" + end + end]) == [b"a", b"b"]


def test_an_event_is_given_out_with_the_byte_that_completes_it():
    reader = EventReader()
    assert reader.feed(b"data: a\n") == []
    assert reader.feed(b"\n") == [b"a"]


def test_whole_events_between_pieces_of_others_are_told_apart():
    assert all_events([b"data: a\n\n", b"data: b\n", b"data: c\n\n", b"data: d\r\n\r", b"data: e\n\n"]) == [
        b"a",
        b"b\nc",
        b"d",
        b"e",
    ]


def test_an_event_without_its_blank_line_was_cut_off():
    assert all_events([b"data: a\n\ndata: b\n"]) == [b"a"]


def test_a_byte_order_mark_in_front_is_no_part_of_the_first_field():
    assert all_events([b"\xef\xbb\xbfdata: a\n\n"]) == [b"a"]


def test_an_endless_event_is_refused(monkeypatch):
    monkeypatch.setattr(sse, "MAX_EVENT_BYTES", 10)
    with pytest.raises(ValueError, match="more than 10 bytes"):
        EventReader().feed(b"data: 0123456789")


LINES = st.lists(
    st.sampled_from(["data: héé", "data: 日本語", "data:", "data", ": ping", "event: x", "", "nonsense"]), max_size=12
)


@given(LINES, st.sampled_from(["\n", "\r\n", "\r"]), st.lists(st.integers(0, 200), max_size=12))
def test_the_same_bytes_give_the_same_events_however_they_are_cut(lines, end, cuts):
    stream = "".join(line + end for line in lines).encode()
    places = sorted({cut for cut in cuts if cut < len(stream)})
    pieces = [stream[a:b] for a, b in zip([0, *places], [*places, len(stream)], strict=True)]
    assert all_events(pieces) == all_events([stream])
    assert all_events([bytes([byte]) for byte in stream]) == all_events([stream])
