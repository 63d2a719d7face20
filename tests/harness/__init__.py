"""What the end-to-end tests stand on: real Envoy, real quota service, real Redis, a scriptable upstream.

Nothing in here asserts product behaviour, with one exception: an Envoy whose filter trapped, or whose log
shows a key or a prompt, fails the test that used it (`envoy.py`).
"""
