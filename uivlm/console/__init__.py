"""A page on this machine to watch runs on a phone, to steer them, and to show how it is done."""
