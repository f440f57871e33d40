"""Fine-tune a vision-language model into an agent that operates a phone."""
