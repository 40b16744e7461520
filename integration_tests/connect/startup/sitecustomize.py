"""Failpoints for the Python processes of a Spark Connect server: a file has them, and each query may have others."""

import os

_points = os.environ.get("EPOCHAL_TEST_POINTS", "")
if _points and os.path.exists(_points):
    with open(_points, encoding="ascii") as _text:
        os.environ["EPOCHAL_FAILPOINTS"] = _text.read().strip()
