"""The dataset card of prepared data: `meta.json` in, the README.md that `datasets` and the hub read out.

Its YAML lists the shards and features, so that `datasets.load_dataset(folder)` has nothing to infer.
"""

from typing import Any

import pyarrow as pa
from jinja2 import Template

from uivlm.episodes.rows import SCHEMA

CARD_FILE = "README.md"

_TEMPLATE = """---
license: other
license_name: license-of-the-source
pretty_name: Prepared episodes of phone use
task_categories:
- image-text-to-text
tags:
- uivlm
- gui-agent
configs:
- config_name: default
  data_files:
{% for split in splits if split.shards %}
  - split: {{ split.name }}
    path:
{% for shard in split.shards %}
    - {{ shard.file }}
{% endfor %}
{% endfor %}
dataset_info:
  features:
{% for name, type in features %}
  - name: {{ name }}
    {{ type }}
{% endfor %}
  splits:
{% for split in splits if split.shards %}
  - name: {{ split.name }}
    num_bytes: {{ split.shards | sum("bytes") }}
    num_examples: {{ split.shards | sum("steps") }}
{% endfor %}
  download_size: {{ shards | sum("bytes") }}
  dataset_size: {{ shards | sum("bytes") }}
---

# Prepared episodes of phone use

One row per step of an episode: the goal, the screen and the recorded action. All rows of an episode are
adjacent, in the order of `t`. Points are (y, x) and boxes (y, x, height, width), as fractions of the screen.
`action_text` is the action with coordinates in {{ num_bins }} bins. `action_type`, `touch_*`, `lift_*` and
`text` are the exact values in AITW's encoding.

| split | episodes | steps |
| --- | --- | --- |
{% for split in splits %}
| {{ split.name }} | {{ "{:,}".format(split.episodes) }} | {{ "{:,}".format(split.shards | sum("steps")) }} |
{% endfor %}

Subsets: {{ subsets }}. Split rule: {{ split_rule }}.

```python
from datasets import load_dataset

data = load_dataset("PATH_OR_REPO_ID", split="train", streaming=True)
```

To train with uivlm, download the repository and pass the folder: `uivlm train RECIPE --set data.path=FOLDER`.

## License

This card does not grant a license. The license of the source recordings applies; check it before you publish.
"""


def render_card(meta: dict[str, Any]) -> str:
    """The card of the prepared data that `meta` describes."""
    template = Template(_TEMPLATE, trim_blocks=True, lstrip_blocks=True, keep_trailing_newline=True)
    shards = meta["shards"]
    card: str = template.render(
        splits=[
            {
                "name": split,
                "episodes": count,
                "shards": [s for s in shards if s["file"].startswith(f"{split}-")],
            }
            for split, count in meta["splits"].items()
        ],
        shards=shards,
        features=[(field.name, _feature_type(field)) for field in SCHEMA],
        num_bins=meta["num_bins"],
        subsets=", ".join(f"`{_plain(subset)}`" for subset in meta["subsets"]),
        split_rule=_plain(meta["split_rule"]),
    )
    return card


def _feature_type(field: pa.Field) -> str:
    """The type of a column as the YAML of `datasets` has it."""
    if field.name == "image":
        return "dtype: image"
    if pa.types.is_list(field.type):
        return f"list: {_dtype(field.type.value_type)}"
    return f"dtype: {_dtype(field.type)}"


def _dtype(arrow_type: pa.DataType) -> str:
    return "float32" if pa.types.is_float32(arrow_type) else str(arrow_type)


def _plain(text: str) -> str:
    """Foreign text on one line, without characters that Markdown or HTML interpret."""
    return "".join(char if char.isalnum() or char in " .,;:/'_-%" else "?" for char in text)[:200]
