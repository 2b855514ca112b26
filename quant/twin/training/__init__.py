"""Training a quantized graph on its twin: fake quantizers, losses, the loop, and checkpoints that it goes on from.

`options` and `material` are light; everything else imports torch.
"""
