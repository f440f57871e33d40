"""Phones behind two methods: show the screen, perform a gesture."""
