"""Builds engines, reads what they run, runs and times them; needs nothing but TensorRT, CUDA's runtime library and NumPy.

These files lie as they are beside an exported model, for `build_engine.py`; the toolkit runs the same ones. So they import
one another by relative names, and nothing of the rest of the toolkit.
"""
