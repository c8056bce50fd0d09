"""Heads of the tasks that answer by token, by mask, or by the rows that one text was made into.

In ONNX's text form like ``pooling.py``. Their outputs are called ``trb_…``: a post-processing model makes the
endpoint's answer of them.
"""

from __future__ import annotations

from triton_repo_builder.repository.tensor_names import ENDS, IDS, LOGITS, SCORES, STARTS


def token_classification(labels: int) -> str:
    """logits [batch, tokens, labels] → the same, softmax over the labels, as float32."""
    return f"""tag (float[B, T, {labels}] logits) => (float[B, T, {labels}] {SCORES}) {{
    logits32 = Cast <to = 1> (logits)
    {SCORES} = Softmax <axis = 2> (logits32)
}}"""


def question_answering() -> str:
    """start and end logits [rows of the model, tokens] → [batch, tokens of the row], pieces end to end."""
    return f"""answer (float[S, T] start_logits, float[S, T] end_logits, int64[B, W, 2] places)
        => (float[B, W] {STARTS}, float[B, W] {ENDS}) {{
    start32 = Cast <to = 1> (start_logits)
    end32 = Cast <to = 1> (end_logits)
    {STARTS} = GatherND (start32, places)
    {ENDS} = GatherND (end32, places)
}}"""


def likeliest(width: int) -> str:
    """logits [batch, moments, tokens] → the token with the largest of each moment, int32 [batch, moments]."""
    return f"""best (float[B, T, {width if width > 0 else "V"}] logits) => (int32[B, T] {IDS}) {{
    largest = ArgMax <axis = 2, keepdims = 0> (logits)
    {IDS} = Cast <to = 6> (largest)
}}"""


def zero_shot(*, labels: int, contradiction: int, entailment: int) -> str:
    """NLI logits [rows of the model, labels] → [batch, candidates, 2]: contradiction and entailment.

    A negative number counts from the end, as in numpy.
    """
    columns = ", ".join(str(number % labels) for number in (contradiction, entailment))
    return f"""judge (float[S, {labels}] logits, int64[B, K] places) => (float[B, K, 2] {LOGITS}) {{
    logits32 = Cast <to = 1> (logits)
    columns = Constant <value = int64[2] {{{columns}}}> ()
    two = Gather <axis = 1> (logits32, columns)
    {LOGITS} = Gather <axis = 0> (two, places)
}}"""


def fill_mask(*, mask_id: int, top_k: int, vocabulary: int | str) -> str:
    """logits [batch, tokens, vocabulary], ids [batch, tokens] → ids and scores [batch, masks, top_k].

    Softmax and top-k run over the masked places only. A row with fewer masks than another ends with zeros.
    """
    return f"""fill (float[B, T, {vocabulary}] logits, int64[B, T] ids)
        => (int32[B, M, {top_k}] {IDS}, float[B, M, {top_k}] {SCORES}) {{
    zero = Constant <value = int64 {{0}}> ()
    one = Constant <value = int64 {{1}}> ()
    all = Constant <value = int64[1] {{-1}}> ()
    as_column = Constant <value = int64[2] {{-1, 1}}> ()
    mask_id = Constant <value = int64 {{{mask_id}}}> ()
    k = Constant <value = int64[1] {{{top_k}}}> ()
    ids64 = Cast <to = 7> (ids)
    is_mask = Equal (ids64, mask_id)
    found = NonZero (is_mask)
    at = Transpose <perm = [1, 0]> (found)
    picked = GatherND (logits, at)
    picked32 = Cast <to = 1> (picked)
    shares = Softmax <axis = 1> (picked32)
    best, best_ids = TopK <axis = 1> (shares, k)
    counted = Cast <to = 7> (is_mask)
    running = CumSum (counted, one)
    nth = GatherND (running, at)
    rank = Sub (nth, one)
    row = Gather <axis = 0> (found, zero)
    row_column = Reshape (row, as_column)
    rank_column = Reshape (rank, as_column)
    place = Concat <axis = 1> (row_column, rank_column)
    most_found = ReduceMax <keepdims = 0> (running)
    none_found = Equal (most_found, zero)
    most = Where (none_found, one, most_found)
    most_1d = Reshape (most, all)
    shape_of_ids = Shape (ids)
    rows = Gather <axis = 0> (shape_of_ids, zero)
    rows_1d = Reshape (rows, all)
    shape = Concat <axis = 0> (rows_1d, most_1d, k)
    no_scores = ConstantOfShape <value = float[1] {{0}}> (shape)
    no_ids = ConstantOfShape <value = int64[1] {{0}}> (shape)
    {SCORES} = ScatterND (no_scores, place, best)
    filled_ids = ScatterND (no_ids, place, best_ids)
    {IDS} = Cast <to = 6> (filled_ids)
}}"""
