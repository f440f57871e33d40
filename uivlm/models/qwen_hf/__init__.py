"""Qwen2-VL, Qwen2.5-VL and Qwen3-VL: transformers' own classes behind the project's protocol of a model."""
