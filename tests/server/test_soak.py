"""Ten thousand requests by 64 clients, a third of them broken in some way."""

import os

import pytest
import soak

SHORT = 500


@pytest.mark.parametrize("n_requests", [SHORT, pytest.param(10000, marks=pytest.mark.long)])
def test_every_well_formed_answer_is_right(serve, n_requests):  # C109
    n_requests = int(os.environ.get("NEPIT_SOAK", n_requests))
    with serve("--max-body", "256K", "--cache-memory", "1M", MALLOC_ARENA_MAX="1") as server:
        done = soak.Soak(server.port, n_requests, 64, pid=server.process.pid).run()
        assert done.errors == []
        assert done.seen["right"] > n_requests * 0.5 and done.seen["left"] > n_requests * 0.1
        assert not [status for status in done.seen if status.startswith("5")]
        metrics = server.metrics()
        told = [name for name in metrics if name.startswith("nepit:http_responses_total")]
        assert not [name for name in told if '"5' in name], told
        if n_requests < 10000:
            return
        # One arena: those of threads fill up unevenly, for long. A process this small is as large
        # as what runs just now: medians of many looks at it.
        half = [size for n, size in done.rss if n_requests * 0.4 < n <= n_requests * 0.6]
        end = [size for n, size in done.rss if n > n_requests * 0.8]
        middle, last = sorted(half)[len(half) // 2], sorted(end)[len(end) // 2]
        assert last <= 1.02 * middle, done.rss
