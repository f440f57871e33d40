"""What all tests share: no network, and one thread a process, so that several of them do not crowd a small machine."""

import os

os.environ["HF_HUB_OFFLINE"] = "1"
os.environ["TOKENIZERS_PARALLELISM"] = "false"
os.environ.setdefault("OMP_NUM_THREADS", "1")  # read by torch when a test imports it
