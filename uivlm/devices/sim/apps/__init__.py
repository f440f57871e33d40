"""The apps of the simulated phone: each draws its place and names what can be touched."""
