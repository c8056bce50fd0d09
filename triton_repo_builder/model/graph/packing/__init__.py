"""A graph over the tokens of all rows, end to end, instead of rows padded to the longest.

Nodes that treat each token by itself (``tokenwise.py``) run once over all tokens. Attention
(``attention.py``) runs in a loop over groups of rows of one length, which needs no mask
(``attention_loop.py``).
Everything else, masks and position ids before and a pooling after, stays as it is, on padded rows: a tensor
of tokens is laid out for it as it was (``layout.py``).
"""
