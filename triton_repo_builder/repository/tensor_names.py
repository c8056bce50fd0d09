"""Names of the tensors that ``trb`` adds to a model, and the numbers with a meaning in them.

They are written into repositories: changing one changes what is served.
"""

from __future__ import annotations

TOKENS, TYPES, LENGTHS = "trb_tokens", "trb_types", "trb_lengths"
"""Inputs of a model with a ragged front: INT32 [all tokens], INT32 [all tokens], FP32 [items, 1]."""
CHUNK_INDEX = "trb_places"
"""Index of the batch item of each chunk (row of the model), from the front to the head."""
ROW_LENGTHS = "trb_row_lengths"
"""Number of tokens of each row, INT64 [rows]: an additional input of a graph without padding."""
FRONT = (TOKENS, TYPES, LENGTHS, CHUNK_INDEX)
IMAGE_SIZE = "image_size"
"""Height and width of the user's image, INT64 [batch, 2], from the preprocessing to a head or after it."""
TEXTS = "trb_texts"
"""The texts beside an image, unchanged, passed on after the image was checked. If the tokenizer ran at the
same time, tritonserver 2.51.0 would never answer again after it refused an image."""
OFFSETS = "trb_spans"
"""Character offsets from the tokenizer to post-processing: INT32 [items, longest, 3 or 5]."""
PAD = -1
"""Id that pads the shorter texts of a request with several: no token has it."""
CHUNK_SEPARATOR = -2
"""Id between the chunks of one item."""

SCORES, IDS, LOGITS, STARTS, ENDS = "trb_scores", "trb_ids", "trb_logits", "trb_starts", "trb_ends"
"""Outputs of heads whose answer a post-processing model makes."""
