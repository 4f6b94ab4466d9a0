from __future__ import annotations

from openclaw_rl.render.cache import SizedCache


def test_drops_what_was_used_longest_ago() -> None:
    cache: SizedCache[str, int] = SizedCache(10)
    cache.put("a", 1, 4)
    cache.put("b", 2, 4)
    assert cache.get("a") == 1
    cache.put("c", 3, 4)
    assert (cache.get("a"), cache.get("b"), cache.get("c")) == (1, None, 3)


def test_one_value_may_push_out_several() -> None:
    cache: SizedCache[str, int] = SizedCache(10)
    for key in "abc":
        cache.put(key, 0, 3)
    cache.put("d", 1, 9)
    assert [cache.get(key) for key in "abcd"] == [None, None, None, 1]


def test_replacing_a_value_frees_its_bytes() -> None:
    cache: SizedCache[str, int] = SizedCache(10)
    cache.put("a", 1, 6)
    cache.put("a", 2, 6)
    cache.put("b", 3, 4)
    assert (cache.get("a"), cache.get("b")) == (2, 3)


def test_what_exceeds_the_whole_cache_is_not_kept() -> None:
    cache: SizedCache[str, int] = SizedCache(10)
    cache.put("a", 1, 6)
    cache.put("b", 2, 11)
    assert (cache.get("a"), cache.get("b")) == (1, None)
