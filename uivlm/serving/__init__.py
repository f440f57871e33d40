"""An agent behind HTTP, and a client that is an agent."""
