"""A Llama that looks through a vision encoder."""
