"""The rate limit of API keys."""

from mailwarden.access.rate_limits import MAX_WINDOWS, RateLimiter


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


def test_a_key_has_its_limit_in_each_minute():
    clock = Clock()
    limiter = RateLimiter(3, clock)
    assert [limiter.count("a").remaining for _ in range(3)] == [2, 1, 0]
    assert limiter.count("a").exceeded
    clock.now += 59.9
    quota = limiter.count("a")
    assert quota.exceeded
    assert quota.seconds == 1
    clock.now += 0.1
    assert limiter.count("a").remaining == 2


def test_keys_do_not_share_a_limit():
    limiter = RateLimiter(1, Clock())
    assert not limiter.count("a").exceeded
    assert not limiter.count("b").exceeded
    assert limiter.count("a").exceeded


def test_the_headers_show_the_policy_and_the_remaining_calls():
    limiter = RateLimiter(600, Clock())
    assert limiter.count("a").headers == {"RateLimit-Policy": '"key";q=600;w=60', "RateLimit": '"key";r=599;t=60'}
    small = RateLimiter(1, Clock())
    small.count("a")
    assert small.count("a").headers["RateLimit"] == '"key";r=0;t=60'


def test_windows_that_ended_are_forgotten():
    clock = Clock()
    limiter = RateLimiter(1, clock)
    for number in range(MAX_WINDOWS):
        limiter.count(f"k{number}")
    clock.now += 60
    limiter.count("new")
    assert len(limiter._windows) == 1
