"""All rows of the table, by name: small models of the real structure.

They have random weights, but for MiniLM, which is the real one. ``family`` names a tokenizer (``families``),
``heads`` what is put on the model (``heads``).
"""

from __future__ import annotations

from conformance import audio_rows, decoder_rows, encoder_rows, popular_rows, text_rows, vision_rows

_MORE = (*encoder_rows.ENCODERS, *encoder_rows.MORE_ENCODERS, *decoder_rows.DECODERS, *popular_rows.POPULAR)
_VISION = (*vision_rows.MAIN, *vision_rows.MORE, *vision_rows.SHAPES)
_TEXT = (*text_rows.MAIN, *text_rows.MORE, *text_rows.MIXED, *text_rows.TORCH)

ARCHITECTURES = {
    row.name: row
    for row in (
        *_TEXT,
        *_MORE,
        *_VISION,
        *audio_rows.ROWS,
        *text_rows.TOKENIZERS,
        *text_rows.POSITIONS,
    )
}
MORE_ROWS = tuple(row.name for row in _MORE)
"""Of which nothing is asked that others show as well."""
POSITION_ROWS = tuple(row.name for row in text_rows.POSITIONS)
TOKENIZER_ROWS = (*(row.name for row in text_rows.TOKENIZERS), *POSITION_ROWS)
"""The second table: one model, every tokenizer."""
