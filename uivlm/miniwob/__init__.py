"""MiniWoB++: small tasks on web pages that judge themselves, goals that agents pursue there, experts that show how."""
