"""What a user is told of an error: one sentence of what is wrong and what to do, for the errors that are theirs."""

from uivlm.agents.agent import AgentError
from uivlm.devices.device import DeviceError

MODEL_EXTRA = (
    "torch", "transformers", "peft", "tokenizers", "safetensors", "datasets", "accelerate", "tiktoken",
)  # fmt: skip


def explained(error: Exception) -> str | None:
    """What to tell the user; None where the error is not theirs."""
    match error:
        case ModuleNotFoundError():
            missing = (error.name or "").partition(".")[0]
            wanted = f"{missing} is not installed here: install uivlm with its `model` extra"
            return wanted if missing in MODEL_EXTRA else None
        case OSError() if error.filename is not None:
            return f"{error.filename}: {error.strerror or error}"
        case ValueError() | OSError() | DeviceError() | AgentError():
            return " ".join(str(error).split())
        case RuntimeError() if type(error).__name__ == "OutOfMemoryError":  # torch's, which may not be here
            return (
                "the GPU's memory is too small for this: `uivlm plan` says what is needed; a smaller train.batch, fewer "
                "grammar.screens or model.quantise=nf4 need less"
            )
    return None
