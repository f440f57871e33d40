"""OpenAI's chat: the `openai` package asks our server; messages become the history that they tell, and nothing else is read."""

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
from uivlm.actions.language import Language
from uivlm.agents.agent import Decision
from uivlm.episode import History
from uivlm.serving.chat import read_chat
from uivlm.serving.pictures import Pictures
from uivlm.serving.server import serving
from uivlm.serving.strict import WireError

LANGUAGE = Language(100)


def url(seed: int, codec: str = "PNG") -> str:
    pixels = np.random.default_rng(seed).integers(0, 256, (12, 9, 3), np.uint8)
    file = io.BytesIO()
    Image.fromarray(pixels).save(file, codec)
    return f"data:image/{codec.lower()};base64,{base64.b64encode(file.getvalue()).decode()}"


def seen(seed: int, codec: str = "PNG") -> dict:
    return {"type": "image_url", "image_url": {"url": url(seed, codec)}}


def user(*parts: object) -> dict:
    return {
        "role": "user",
        "content": [{"type": "text", "text": p} if isinstance(p, str) else p for p in parts],
    }


def did(words: str) -> dict:
    return {"role": "assistant", "content": words}


class Listens:
    """Keeps what it was asked; types how many steps there were."""

    def __init__(self) -> None:
        self.heard: list[History] = []

    def reset(self) -> None:
        pass

    def act(self, history: History) -> Decision:
        self.heard.append(history)
        words = LANGUAGE.say(Type(f"{len(history.steps)} \n“steps” 🙂"))
        return Decision(LANGUAGE.parse(words), words, 0.5)


EPISODE = [
    {"role": "system", "content": "You are a GUI agent. ## Action space: click(start_box=...)"},
    user("open the clock", seen(0)),
    did("tap at 10 20"),
    user("Observation:", seen(1, "JPEG")),
    did('Input text "7 \\n pm"'),
    user(seen(2)),
]


def test_the_openai_package_gets_the_action() -> None:
    agent = Listens()
    with serving({"tiny": agent}, {"bins": 100}, token="s3cret") as base:
        client = openai.OpenAI(base_url=f"{base}/v1", api_key="s3cret", max_retries=0)
        assert [model.id for model in client.models.list()] == ["tiny"]
        answer = client.chat.completions.create(model="tiny", messages=EPISODE, temperature=0, max_tokens=100)
        words = answer.choices[0].message.content
        assert LANGUAGE.parse(words) == Type("2 \n“steps” 🙂")
        assert answer.choices[0].finish_reason == "stop"
        parts = list(client.chat.completions.create(model="tiny", messages=EPISODE, stream=True))
        assert "".join(part.choices[0].delta.content or "" for part in parts) == words
        assert parts[-1].choices[0].finish_reason == "stop"
        with pytest.raises(openai.NotFoundError, match="there is 'tiny'"):
            client.chat.completions.create(model="gpt-9", messages=EPISODE)
        with pytest.raises(openai.UnprocessableEntityError, match="no data URL"):
            client.chat.completions.create(model="tiny", messages=[user("g", image("file:///etc/passwd"))])
        with pytest.raises(openai.AuthenticationError):
            openai.OpenAI(base_url=f"{base}/v1", api_key="wrong", max_retries=0).models.list()
        client.close()
    one, other = agent.heard
    assert one.goal == "open the clock"
    assert [step.action for step in one.steps] == [Tap(Point(0.105, 0.205)), Type("7 \n pm")]
    for step, seed in zip((one.steps[0], one), (0, 2), strict=True):
        pixels = np.random.default_rng(seed).integers(0, 256, (12, 9, 3), np.uint8)
        assert np.array_equal(step.screen.pixels, pixels)
    assert other.steps[1].screen is one.steps[1].screen  # unpacked once


def image(where: str) -> dict:
    return {"type": "image_url", "image_url": {"url": where}}


def test_a_whole_episode_by_chat_is_the_one_by_act(tmp_path: Path) -> None:
    """The past comes back in the words that were said."""
    said: list[Action] = []

    class Says:
        lines = ("tap at 10 20", "swipe from 90 50 to 10 50", "press back", "complete")

        def reset(self) -> None:
            pass

        def act(self, history: History) -> Decision:
            said.append(history.steps[-1].action if history.steps else Press("home"))
            words = self.lines[len(history.steps)]
            return Decision(LANGUAGE.parse(words), words)

    messages = [user("goal", seen(0))]
    with serving({"tiny": Says()}) as base:
        client = openai.OpenAI(base_url=f"{base}/v1", api_key="none", max_retries=0)
        for i in range(1, 5):
            words = client.chat.completions.create(model="tiny", messages=messages).choices[0].message.content
            messages += [did(words), user(seen(i))]
        client.close()
    assert [LANGUAGE.say(action) for action in said[1:]] == list(Says.lines[:3])


REFUSED = {
    "no messages": ({}, "messages is null"),
    "messages no list": ({"messages": "hi"}, "messages is of type str"),
    "no goal": ({"messages": [user(seen(0))]}, "have no text of the user"),
    "no screen": ({"messages": [user("g")]}, "end without a screen"),
    "acted on": ({"messages": [user("g", seen(0)), did("press back")]}, "end without a screen"),
    "no screen before": ({"messages": [user("g"), did("press back")]}, r"messages\[1\] is an action without a screen"),
    "two screens": ({"messages": [user("g", seen(0), seen(1))]}, "second screen, and no action between"),
    "other words": ({"messages": [user("g", seen(0)), did("click(1, 2)"), user(seen(1))]}, "is no action"),
    "a role": ({"messages": [{"role": "tool", "content": ""}]}, "must be user, assistant or system"),
    "a file": ({"messages": [user("g", image("file:///etc/passwd"))]}, "no data URL"),
    "an address": ({"messages": [user("g", image("http://169.254.169.254/latest"))]}, "no data URL"),
    "another type": ({"messages": [user("g", image("data:image/svg+xml;base64,PHN2Zz4="))]}, "no data URL"),
    "no base64": ({"messages": [user("g", image("data:image/png;base64,§§"))]}, "is no base64"),
    "no picture": ({"messages": [user("g", image("data:image/png;base64,aGVsbG8="))]}, "is no PNG or JPEG"),
    "audio": ({"messages": [user("g", {"type": "input_audio"})]}, "must hold texts and image_urls"),
    "a surrogate": ({"messages": [user("\ud800", seen(0))]}, "half of a surrogate pair"),
    "a null": ({"messages": [None]}, r"messages\[0\] must be an object"),
    "many answers": ({"messages": EPISODE, "n": 2}, "n is 2: there is one answer"),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_no_history_gets_a_sentence(name: str) -> None:
    body, sentence = REFUSED[name]
    with pytest.raises(WireError, match=sentence):
        read_chat(json.dumps({"model": "tiny"} | body), LANGUAGE, Pictures())


def test_hostile_bodies_are_only_ever_a_wire_error() -> None:
    whole = json.dumps({"model": "tiny", "messages": EPISODE})
    draw = np.random.default_rng(5)
    pieces: Sequence[str] = ["", "\\", '"', "}", "null", "0", "[", "9" * 400]
    for _ in range(400):
        at = int(draw.integers(len(whole)))
        damaged = whole[:at] + pieces[int(draw.integers(len(pieces)))] + whole[at + int(draw.integers(4)) :]
        with suppress(WireError):
            assert read_chat(damaged, LANGUAGE, Pictures()).model


def test_qwen_agents_own_client_plays_an_episode(tmp_path: Path) -> None:
    """Qwen-Agent, which drives phones with Qwen's models, as it is: its messages, its pictures from files, its streaming."""
    get_chat_model = pytest.importorskip(
        "qwen_agent.llm", reason="Qwen-Agent is not installed"
    ).get_chat_model
    agent, messages = Listens(), [{"role": "system", "content": "You are a helpful assistant."}]
    with serving({"tiny": agent}, {"bins": 100}, token="s3cret") as base:
        client = get_chat_model(
            {"model": "tiny", "model_type": "qwenvl_oai", "model_server": f"{base}/v1", "api_key": "s3cret"}
        )
        for t, stream in enumerate((True, False, True)):
            file = tmp_path / f"{t}.png"
            file.write_bytes(base64.b64decode(url(t).partition(",")[2]))
            messages.append({"role": "user", "content": [{"text": "open the clock"}, {"image": str(file)}]})
            answers = client.chat(messages=messages, stream=stream)
            (answer,) = list(answers)[-1] if stream else answers
            assert LANGUAGE.parse(answer["content"]) == Type(f"{t} \n“steps” 🙂")
            messages.append({"role": "assistant", "content": answer["content"]})
    assert [len(history.steps) for history in agent.heard] == [0, 1, 2]
    assert all(history.goal == "open the clock" for history in agent.heard)
    assert [step.action for step in agent.heard[2].steps] == [Type("0 \n“steps” 🙂"), Type("1 \n“steps” 🙂")]
    # it packs screens anew, but alike each time: what was unpacked once is not unpacked again
    assert agent.heard[2].steps[1].screen is agent.heard[1].screen
    assert agent.heard[2].screen is not agent.heard[1].screen
