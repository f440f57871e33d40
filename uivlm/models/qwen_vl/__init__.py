"""Qwen-VL, the original of 2023, native: its own key names and numbers, on current libraries."""
