"""How good an agent is, by the rules of AITW."""
