"""The parts of docs/render.py."""
