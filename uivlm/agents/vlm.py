"""The history-aware VLM as an agent: the whole history goes into every prompt, and nothing else decides."""

from collections.abc import Sequence

from uivlm.actions.decision import Decision
from uivlm.episodes.episode import History
from uivlm.inference.engine import Engine, TorchEngine

MAX_CONCURRENCY = 32  # histories; vLLM queues what does not fit into its memory


class VlmAgent:
    def __init__(self, engine: Engine) -> None:
        self.engine = engine

    def reset(self) -> None:
        pass  # it has no plan to discard, and its caches change only the cost

    def act(self, history: History) -> Decision:
        return self.act_batch([history])[0]

    def act_batch(self, histories: Sequence[History]) -> list[Decision]:
        return self.engine.predict_batch(histories)

    def reset_cache(self) -> None:
        self.engine.reset_cache()


class ConcurrentVlmAgent(VlmAgent):
    """On vLLM, which adds a history to its running batch at any time."""

    max_concurrency = MAX_CONCURRENCY


class RankingVlmAgent(VlmAgent):
    """On the native engine, which can also return the k most probable decisions."""

    engine: TorchEngine

    def __init__(self, engine: TorchEngine) -> None:
        super().__init__(engine)

    def top_k(self, history: History, k: int) -> list[Decision]:
        return self.engine.top_k(history, k)
