"""The shipped tiny base on simulated episodes: the demo and the tests. Minutes on two CPU cores."""

from uivlm.recipe import DataArgs, LlamaVitArgs, LoraArgs, OptimArgs, PromptArgs, Recipe, TrainArgs


def recipe() -> Recipe:
    return Recipe(
        name="tiny",
        model=LlamaVitArgs(
            base_model="tiny",  # ours: made by `uivlm pretrain`, never saw an episode or a goal
            lora=LoraArgs(r=16, alpha=16, dropout=0.0),  # ours
        ),
        prompt=PromptArgs(
            num_bins=100,  # UI-VLM: coordinates from 0 to 99
            max_screens=8,  # ours: the episodes of the demo are seldom longer
            max_past_actions=8,  # ours
        ),
        data=DataArgs(path="build/demo/data"),  # ours: where `make demo` prepares its episodes
        train=TrainArgs(
            epochs=6,  # ours: fits into the demo's minutes; two points more than four epochs
            per_device_batch_size=8,  # ours
            activation_checkpointing=False,  # ours: the model is small
            precision="float32",  # ours: CPUs are slow at bfloat16
            cache_vision_features=True,  # ours: the vision encoder is frozen
        ),
        optim=OptimArgs(
            lr=3e-3,  # ours: 1e-3 ended five points of partial match below 2.5e-3
            warmup_fraction=0.05,  # ours
            weight_decay=0.0,  # ours
        ),
    )
