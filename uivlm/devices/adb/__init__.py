"""A phone behind adb."""
