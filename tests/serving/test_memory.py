"""What requests hold is counted before it is taken; small requests do not wait for large ones."""

import base64
import io
import json
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from typing import Any

import httpx
import pytest
from PIL import Image

from tests.helpers.raw_requests import answer, line, unfinished_body
from tests.helpers.served import JSON, HeldAgent, metric_sums, released_agent, small_history
from uivlm.serving import handler
from uivlm.serving.fair_slots import FairSlots
from uivlm.serving.memory import MemoryBudget, MemoryLimitError
from uivlm.serving.protocol import write_history
from uivlm.serving.screen_cache import ScreenCache
from uivlm.serving.server import serve_in_thread

KIB = 1024


def held_bytes(url: str) -> float:
    return metric_sums(url)["uivlm_request_memory_bytes"]


def wait_for(condition: Any) -> None:
    until = time.monotonic() + 10
    while not condition():
        assert time.monotonic() < until
        time.sleep(0.01)


def test_bodies_on_their_way_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    """Twice: as they arrive, and as the texts that are parsed from them."""
    monkeypatch.setattr(handler, "MAX_HELD_BYTES", 150 * KIB)
    monkeypatch.setattr(handler, "MAX_ADDRESS_BYTES", 100 * KIB)
    body = unfinished_body(b" " * 40 * KIB)
    with serve_in_thread({"tiny": released_agent()}) as url:
        with line(url, body):
            wait_for(lambda: held_bytes(url) == 80 * KIB)
            with line(url, body) as second:  # too much for the address
                refused = answer(second)
                assert refused.startswith(b"HTTP/1.1 429")
                assert b"retry-after: 10" in refused
                assert b"requests from 127.0.0.1 hold" in refused
            with line(url, body, address="127.0.0.2") as other:  # too much for the server
                assert answer(other).startswith(b"HTTP/1.1 503")
            assert httpx.post(f"{url}/act", content=write_history(small_history()), headers=JSON).is_success
            assert held_bytes(url) == 80 * KIB
        wait_for(lambda: held_bytes(url) == 0)


def test_screens_are_counted_before_they_are_decoded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(handler, "MAX_ADDRESS_BYTES", 3 * 10**6)
    with serve_in_thread({"tiny": released_agent()}) as url:
        for width, status in ((900, 200), (1001, 429)):
            body = history_of(flat_png(width, 1000), 0)
            assert httpx.post(f"{url}/act", content=body, headers=JSON).status_code == status
        assert held_bytes(url) == 0


def test_a_request_without_an_api_key_may_have_fewer_pixels(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("uivlm.serving.server.MAX_PIXELS_WITHOUT_KEY", 300)
    body, headers = write_history(small_history(2)), {**JSON, "authorization": "Bearer key"}  # 324 pixels
    for api_key, status in ((None, 422), ("key", 200)):
        with serve_in_thread({"tiny": released_agent()}, api_key=api_key) as url:
            assert httpx.post(f"{url}/act", content=body, headers=headers).status_code == status


def test_a_share_that_was_given_back_cannot_grow() -> None:
    """Its request has ended; the thread that still decodes for it ends, too."""
    budget = MemoryBudget(100, 60)
    with budget.share("a") as first:
        first.grow(60)
        with budget.share("b") as second, pytest.raises(MemoryLimitError) as refused:
            second.grow(41)
        assert refused.value.status == 503
        with budget.share("a") as second, pytest.raises(MemoryLimitError) as refused:
            second.grow(1)
        assert refused.value.status == 429
        first.resize(10)
        assert budget.num_bytes == 10
    assert budget.num_bytes == 0
    with pytest.raises(MemoryLimitError, match="has ended"):
        first.grow(1)


def test_the_smallest_goes_first() -> None:
    slots, order, threads = FairSlots(1), list[int](), list[threading.Thread]()

    def work(size: int) -> None:
        with slots.slot(size):
            order.append(size)

    with slots.slot(0):
        for size in (9, 1, 5, 1):
            threads.append(threading.Thread(target=work, args=(size,)))
            threads[-1].start()
        wait_for(lambda: len(slots._waiting) == 4)
    for thread in threads:
        thread.join()
    assert order == [1, 1, 5, 9]


def flat_png(width: int, height: int) -> str:
    file = io.BytesIO()
    Image.new("RGB", (width, height)).save(file, "PNG")
    return base64.b64encode(file.getvalue()).decode()


def history_of(png: str, num_steps: int) -> bytes:
    screen = {"png": png, "elements": []}
    step = {"screen": screen, "action": {"type": "press", "key": "back"}}
    return json.dumps({"goal": "g", "steps": [step] * num_steps, "screen": screen}).encode()


@pytest.mark.slow
def test_a_small_request_does_not_wait_for_large_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ScreenCache, "find", lambda *_: None)  # each screen is decoded
    large = history_of(flat_png(1000, 1000), 15)
    with serve_in_thread({"tiny": released_agent()}) as url, ThreadPoolExecutor(3) as pool:

        def post(body: bytes) -> float:
            assert httpx.post(f"{url}/act", content=body, headers=JSON, timeout=60).status_code == 200
            return time.monotonic()

        larges = [pool.submit(post, large) for _ in range(3)]
        wait_for(lambda: held_bytes(url) > 6 * 10**6)  # their screens are being decoded
        small = post(write_history(small_history()))
        assert all(small < answered.result() for answered in larges)


def test_many_slow_bodies_get_less_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(handler, "MAX_QUIET_BODIES", 2)
    monkeypatch.setattr(handler, "CROWDED_BODY_TIMEOUT_S", 0.3)
    with serve_in_thread({"tiny": HeldAgent()}) as url, ExitStack() as stack:
        lines = [stack.enter_context(line(url, unfinished_body(b"{"))) for _ in range(2)]
        lines[0].settimeout(0.6)
        with pytest.raises(TimeoutError):  # two have all their time
            answer(lines[0])
        lines[0].settimeout(10)
        lines.append(stack.enter_context(line(url, unfinished_body(b"{"))))
        assert [answer(each)[:12] for each in lines] == [b"HTTP/1.1 408"] * 3
