"""The simulated phone: drawn with Pillow, seeded, reached through adb."""
