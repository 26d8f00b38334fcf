"""What of the sentences in records only some readers get."""

from __future__ import annotations

from config.text.access_fields import with_tried, without_tried


def test_upstreams_that_were_tried_are_named_and_taken_away_again() -> None:
    tried = [("up1", "it responds 500"), ("up2", "refused")]
    sentence = with_tried("it failed", tried)
    assert sentence == "it failed; upstreams tried: up1 (it responds 500), up2 (refused)"
    assert with_tried("", tried[:1]) == "upstreams tried: up1 (it responds 500)"
    assert with_tried("", [("up", "refused")] * 9).endswith(", up (refused) and 4 more")
    assert [without_tried(each) for each in (sentence, with_tried("", tried), "it failed", "")] == [
        "it failed",
        "",
        "it failed",
        "",
    ]
