"""What all tests share: no network, and few threads, so that a small machine is not crowded."""

import os

os.environ["HF_HUB_OFFLINE"] = "1"
os.environ["TOKENIZERS_PARALLELISM"] = "false"
os.environ.setdefault("OMP_NUM_THREADS", "2")  # read by torch when a test imports it
