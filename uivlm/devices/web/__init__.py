"""A web page in Chromium as a device."""
