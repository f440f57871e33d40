"""Several adapters over one base: each agent is the one that its checkpoint alone would be, the base is in
memory once.
"""

from pathlib import Path
from random import Random

import httpx
import pytest
import torch

from tests.helpers.multi_adapter import saved
from tests.helpers.tiny_models import base, episode, prepare, qwen_base, qwen_recipe, recipe
from uivlm.agents.agent import AgentError
from uivlm.cli.agents import load_agents
from uivlm.inference.engine import TorchEngine
from uivlm.inference.load import LoadedCheckpoint, load_checkpoint, load_checkpoints_shared_base
from uivlm.serving.client import RemoteAgent
from uivlm.serving.server import serve_in_thread


@pytest.fixture(scope="module", params=["bridge", "qwen_vl"])
def folders(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    root = tmp_path_factory.mktemp("adapters")
    data = prepare(root / "data", [episode(0, 2)])
    bridge = request.param == "bridge"
    wanted = recipe(base(root / "base"), data) if bridge else qwen_recipe(qwen_base(root / "base"), data)
    return [saved(root, f"adapter{seed}", wanted, seed) for seed in range(3)]


def weights(loaded: LoadedCheckpoint) -> dict[str, int]:
    return {name: value.data_ptr() for name, value in loaded.model.named_parameters() if "lora_" not in name}


@pytest.mark.slow
@torch.inference_mode()
def test_each_is_the_agent_that_it_is_alone(folders: list[Path]) -> None:
    """In any order, in turns: no adapter is left in another's way."""
    beside = [TorchEngine(one, constrained=True) for one in load_checkpoints_shared_base(folders)]
    alone = [TorchEngine(load_checkpoint(folder), constrained=True) for folder in folders]
    rng, words = Random(0), set[str]()
    for _ in range(12):
        i, past = rng.randrange(3), episode(rng.randrange(5), 4).history(rng.randrange(4))
        said, expected = beside[i].predict(past), alone[i].predict(past)
        assert said.text == expected.text
        assert said.confidence == pytest.approx(expected.confidence, rel=1e-3)
        words.add(f"{i}: {said.text}")
    assert len({line.split(": ")[1] for line in words}) > 1, "all say the same: this shows nothing"


def test_the_base_is_there_once(folders: list[Path]) -> None:
    one, *others = map(weights, load_checkpoints_shared_base(folders))
    for other in others:
        apart = {name for name in one if one[name] != other[name]}
        assert all(name.startswith("projection.") for name in apart)
        assert len(one) > len(apart)
    with torch.no_grad():
        first, second, _ = load_checkpoints_shared_base(folders)
        for name, value in first.model.named_parameters():
            if name.startswith("projection.") or "lora_" in name:
                value.zero_()
        kept = dict(load_checkpoints_shared_base([folders[1], folders[0]])[0].model.named_parameters())
        for name, value in second.model.named_parameters():
            assert torch.equal(value, kept[name]), f"{name} of the second is the first's"


@pytest.mark.slow
def test_served_by_name(folders: list[Path]) -> None:
    agents = load_agents(folders, max_cached_prefixes=2)
    assert list(agents) == ["adapter0", "adapter1", "adapter2"]
    pasts = [episode(seed, 3).history(2) for seed in range(4)]
    expected = {name: [agent.act(past).text for past in pasts] for name, agent in agents.items()}
    assert len({tuple(words) for words in expected.values()}) > 1
    with serve_in_thread(agents, {"num_bins": 100}) as url:
        assert [one["id"] for one in httpx.get(f"{url}/v1/models").json()["data"]] == list(agents)
        for name, words in expected.items():
            with RemoteAgent(f"{url}?model={name}") as remote:
                assert [remote.act(past).text for past in pasts] == words
        with RemoteAgent(url) as remote:
            assert [remote.act(past).text for past in pasts] == expected["adapter0"]
        with (
            RemoteAgent(f"{url}?model=nobody") as remote,
            pytest.raises(AgentError, match="model: got 'nobody'; expected one of 'adapter0'"),
        ):
            remote.act(pasts[0])
    with pytest.raises(ValueError, match=r"server URL: got .*model=NAME"):
        RemoteAgent("http://127.0.0.1:1?file=x")


def test_what_does_not_share_a_base_is_refused(folders: list[Path], tmp_path: Path) -> None:
    data = prepare(tmp_path / "data", [episode(0, 2)])
    other = saved(tmp_path, "other", recipe(base(tmp_path / "base"), data), 0)
    with pytest.raises(ValueError, match="has another base or prompt format than"):
        load_checkpoints_shared_base([folders[0], other])
    again = tmp_path / "again" / folders[0].name
    again.mkdir(parents=True)
    for file in folders[0].iterdir():
        (again / file.name).write_bytes(file.read_bytes())
    with pytest.raises(ValueError, match="2 checkpoints are called 'adapter0'"):
        load_checkpoints_shared_base([folders[0], again])
