"""Choosing codes for the blocks of a weight, one way a file: to the nearest, by GPTQ, by AWQ.

Weights are float64 `[out, in]`; blocks lie along `in`. What a layer reads is known by its second moments H = E[x xᵀ],
float64 `[in, in]`: with W' for the rounded weights and D = W' - W, the mean squared error of the layer's outputs, added up
over them, is the trace of D H Dᵀ, so a choice can be held to what it does to real data without that data.
"""
