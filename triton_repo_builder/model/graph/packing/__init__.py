"""A graph over the tokens of all rows, end to end, instead of rows padded to the longest.

What treats each token by itself (``tokenwise.py``) runs once over all of them. Attention (``attention.py``)
runs in a loop over the rows, those of one length together, which needs no mask (``attention_loop.py``).
Everything else, masks and position ids before and a pooling after, stays as it is, on padded rows: a tensor
of tokens is laid out for it as it was (``layout.py``).
"""
