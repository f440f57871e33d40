"""OpenAI's chat: the `openai` package as client; messages become a history, the rest is ignored."""

import base64
import io
import json
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

import numpy as np
import openai
import pytest
from PIL import Image

from uivlm.actions.action import Action, Point, Press, Tap, Type
from uivlm.actions.decision import Decision
from uivlm.actions.schema import SchemaError
from uivlm.actions.text import ActionText
from uivlm.episodes.episode import History
from uivlm.serving.openai_chat import read_chat
from uivlm.serving.screen_cache import ScreenCache, ScreenDecoder
from uivlm.serving.server import serve_in_thread

ACTION_TEXT = ActionText(100)


def url(seed: int, codec: str = "PNG") -> str:
    pixels = np.random.default_rng(seed).integers(0, 256, (12, 9, 3), np.uint8)
    file = io.BytesIO()
    Image.fromarray(pixels).save(file, codec)
    return f"data:image/{codec.lower()};base64,{base64.b64encode(file.getvalue()).decode()}"


def image_part(seed: int, codec: str = "PNG") -> dict:
    return {"type": "image_url", "image_url": {"url": url(seed, codec)}}


def user(*parts: object) -> dict:
    return {
        "role": "user",
        "content": [{"type": "text", "text": p} if isinstance(p, str) else p for p in parts],
    }


def did(text: str) -> dict:
    return {"role": "assistant", "content": text}


class StepCounter:
    """Keeps the histories; types the number of their steps."""

    def __init__(self) -> None:
        self.histories: list[History] = []

    def reset(self) -> None:
        pass

    def act(self, history: History) -> Decision:
        self.histories.append(history)
        text = ACTION_TEXT.format(Type(f"{len(history.steps)} \n“steps” 🙂"))
        return Decision(ACTION_TEXT.parse(text), text, 0.5)


EPISODE = [
    {"role": "system", "content": "You are a GUI agent. ## Action space: click(start_box=...)"},
    user("open the clock", image_part(0)),
    did("tap at 10 20"),
    user("Observation:", image_part(1, "JPEG")),
    did('Input text "7 \\n pm"'),
    user(image_part(2)),
]


def test_the_openai_package_gets_the_action() -> None:
    agent = StepCounter()
    with serve_in_thread({"tiny": agent}, {"num_bins": 100}, api_key="s3cret") as base:
        client = openai.OpenAI(base_url=f"{base}/v1", api_key="s3cret", max_retries=0)
        assert [model.id for model in client.models.list()] == ["tiny"]
        answer = client.chat.completions.create(model="tiny", messages=EPISODE, temperature=0, max_tokens=100)
        text = answer.choices[0].message.content
        assert ACTION_TEXT.parse(text) == Type("2 \n“steps” 🙂")
        assert answer.choices[0].finish_reason == "stop"
        parts = list(client.chat.completions.create(model="tiny", messages=EPISODE, stream=True))
        assert "".join(part.choices[0].delta.content or "" for part in parts) == text
        assert parts[-1].choices[0].finish_reason == "stop"
        with pytest.raises(openai.NotFoundError, match="'gpt-9'; expected one of 'tiny'"):
            client.chat.completions.create(model="gpt-9", messages=EPISODE)
        with pytest.raises(openai.UnprocessableEntityError, match="expected a data URL"):
            client.chat.completions.create(model="tiny", messages=[user("g", image("file:///etc/passwd"))])
        with pytest.raises(openai.AuthenticationError):
            openai.OpenAI(base_url=f"{base}/v1", api_key="wrong", max_retries=0).models.list()
        client.close()
    first, second = agent.histories
    assert first.goal == "open the clock"
    assert [step.action for step in first.steps] == [Tap(Point(0.105, 0.205)), Type("7 \n pm")]
    for step, seed in zip((first.steps[0], first), (0, 2), strict=True):
        pixels = np.random.default_rng(seed).integers(0, 256, (12, 9, 3), np.uint8)
        assert np.array_equal(step.screen.pixels, pixels)
    assert second.steps[1].screen is first.steps[1].screen  # decoded once


def image(where: str) -> dict:
    return {"type": "image_url", "image_url": {"url": where}}


def test_a_whole_episode_by_chat_is_the_one_by_act(tmp_path: Path) -> None:
    """The past actions return as the text that the server sent."""
    last_actions: list[Action] = []

    class Scripted:
        lines = ("tap at 10 20", "swipe from 90 50 to 10 50", "press back", "complete")

        def reset(self) -> None:
            pass

        def act(self, history: History) -> Decision:
            last_actions.append(history.steps[-1].action if history.steps else Press("home"))
            text = self.lines[len(history.steps)]
            thought = "next, tap at 1 1\n" if len(history.steps) == 1 else ""
            return Decision(ACTION_TEXT.parse(text), f"{thought}{text}")

    messages = [user("goal", image_part(0))]
    with serve_in_thread({"tiny": Scripted()}) as base:
        client = openai.OpenAI(base_url=f"{base}/v1", api_key="none", max_retries=0)
        for i in range(1, 5):
            text = client.chat.completions.create(model="tiny", messages=messages).choices[0].message.content
            messages += [did(text), user(image_part(i))]
        client.close()
    assert [ACTION_TEXT.format(action) for action in last_actions[1:]] == list(Scripted.lines[:3])


INVALID = {
    "no messages": ({}, "chat.messages: field required"),
    "messages no list": ({"messages": "hi"}, "chat.messages: expected a list, got 'hi'"),
    "no goal": ({"messages": [user(image_part(0))]}, "messages: no text of the user"),
    "no screen": ({"messages": [user("g")]}, "messages: no screen after"),
    "acted on": ({"messages": [user("g", image_part(0)), did("press back")]}, "messages: no screen after"),
    "no screen before": ({"messages": [user("g"), did("press back")]}, r"\[1\]: action without a screen"),
    "two screens": ({"messages": [user("g", image_part(0), image_part(1))]}, r"messages\[0\]: second screen"),
    "other text": (
        {"messages": [user("g", image_part(0)), did("click(1, 2)"), user(image_part(1))]},
        r"messages\[1\].content: got 'click\(1, 2\)'; expected an action",
    ),
    "an image as action": (
        {"messages": [user("g", image_part(0)), {"role": "assistant", "content": [image_part(1)]}]},
        r"messages\[1\].content: got an image",
    ),
    "a role": ({"messages": [{"role": "tool", "content": ""}]}, r"\[0\].role: .*'user'.* got 'tool'"),
    "a file": ({"messages": [user("g", image("file:///etc/passwd"))]}, "expected a data URL"),
    "an address": ({"messages": [user("g", image("http://169.254.169.254/latest"))]}, "expected a data URL"),
    "another type": ({"messages": [user("g", image("data:image/svg+xml;base64,PHN2Zz4="))]}, "a data URL"),
    "no base64": ({"messages": [user("g", image("data:image/png;base64,§§"))]}, "not valid base64"),
    "no picture": (
        {"messages": [user("g", image("data:image/png;base64,aGVsbG8="))]},
        "5 bytes that are not a PNG or JPEG",
    ),
    "audio": ({"messages": [user("g", {"type": "input_audio"})]}, "'image_url'; got 'input_audio'"),
    "a surrogate": ({"messages": [user("\ud800", image_part(0))]}, "invalid JSON"),
    "a null": ({"messages": [None]}, r"chat.messages\[0\]: expected an object"),
    "many answers": ({"messages": EPISODE, "n": 2}, "chat.n: expected 1, got 2"),
    "too many messages": ({"messages": [did("press back")] * 801}, "chat.messages: .* 800"),
    "a long goal": ({"messages": [user("x" * 20_001, image_part(0))]}, "20000 characters"),
}  # fmt: skip


@pytest.mark.parametrize("name", INVALID)
def test_messages_that_are_not_a_history_get_one_sentence(name: str) -> None:
    body, sentence = INVALID[name]
    with pytest.raises(SchemaError, match=sentence) as error:
        read_chat(json.dumps({"model": "tiny"} | body), ScreenDecoder(ScreenCache()), ACTION_TEXT)
    assert len(str(error.value)) < 400


def test_hostile_bodies_are_only_ever_a_schema_error() -> None:
    whole = json.dumps({"model": "tiny", "messages": EPISODE})
    rng = np.random.default_rng(5)
    pieces: Sequence[str] = ["", "\\", '"', "}", "null", "0", "[", "9" * 400]
    for _ in range(400):
        at = int(rng.integers(len(whole)))
        damaged = whole[:at] + pieces[int(rng.integers(len(pieces)))] + whole[at + int(rng.integers(4)) :]
        with suppress(SchemaError):
            assert read_chat(damaged, ScreenDecoder(ScreenCache()), ACTION_TEXT).model


@pytest.mark.slow
def test_qwen_agents_own_client_plays_an_episode(tmp_path: Path) -> None:
    """Qwen-Agent, unchanged: its messages, its images from files, its streaming."""
    get_chat_model = pytest.importorskip(
        "qwen_agent.llm", reason="Qwen-Agent is not installed"
    ).get_chat_model
    agent, messages = StepCounter(), [{"role": "system", "content": "You are a helpful assistant."}]
    with serve_in_thread({"tiny": agent}, {"num_bins": 100}, api_key="s3cret") as base:
        client = get_chat_model(
            {"model": "tiny", "model_type": "qwenvl_oai", "model_server": f"{base}/v1", "api_key": "s3cret"}
        )
        for t, stream in enumerate((True, False, True)):
            file = tmp_path / f"{t}.png"
            file.write_bytes(base64.b64decode(url(t).partition(",")[2]))
            messages.append({"role": "user", "content": [{"text": "open the clock"}, {"image": str(file)}]})
            answers = client.chat(messages=messages, stream=stream)
            (answer,) = list(answers)[-1] if stream else answers
            assert ACTION_TEXT.parse(answer["content"]) == Type(f"{t} \n“steps” 🙂")
            messages.append({"role": "assistant", "content": answer["content"]})
    assert [len(history.steps) for history in agent.histories] == [0, 1, 2]
    assert all(history.goal == "open the clock" for history in agent.histories)
    assert [step.action for step in agent.histories[2].steps] == [
        Type("0 \n“steps” 🙂"),
        Type("1 \n“steps” 🙂"),
    ]
    # it encodes each screen again, to the same bytes: the server decodes it once
    assert agent.histories[2].steps[1].screen is agent.histories[1].screen
    assert agent.histories[2].screen is not agent.histories[1].screen
