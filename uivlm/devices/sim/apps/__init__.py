"""The apps of the simulated phone: each draws its current entry and adds touch targets."""
