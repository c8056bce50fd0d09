"""Object detection: the graph's boxes and scores → the best objects, in pixels of the user's own image.

Three forms of graphs: DETR's (``queries``), YOLO's, whose boxes still overlap (``anchors``), and those that
give finished boxes (``finished``). Each is brought to boxes, one score and one label for each candidate; the
rest is the same. Operators are of opset 11, in forms that later opsets have kept.
"""

from __future__ import annotations

from dataclasses import dataclass

OLDEST_OPSET = 11
APART = 7680
"""Ultralytics' ``max_wh``: boxes of different classes are moved so far apart that none suppresses another."""
# [center x, center y, width, height] times this are the corners [left, top, right, bottom].
_CORNERS = """
    to_corners = Constant <value = float[4, 4] {1, 0, 1, 0,  0, 1, 0, 1,
                                                -0.5, 0, 0.5, 0,  0, -0.5, 0, 0.5}> ()"""
_COMMON = """
    zero = Constant <value = int64 {0}> ()
    nought = Constant <value = float {0}> ()
    one = Constant <value = int64[1] {1}> ()
    as_row = Constant <value = int64[2] {0, -1}> ()
    as_column = Constant <value = int64[3] {0, -1, 1}> ()
    as_four = Constant <value = int64[3] {0, 1, 4}> ()
    size32 = Cast <to = 1> (image_size)
    columns_rows = Constant <value = int64[4] {1, 0, 1, 0}> ()
    edges_row = Gather <axis = 1> (size32, columns_rows)
    edges = Reshape (edges_row, as_four)"""

# Each box is one candidate and has one label.
_OWN_LABEL = """
    box_place = Identity (place)
    label_place = GatherElements <axis = 1> (candidate_labels, place)"""


@dataclass(frozen=True, kw_only=True)
class BoxSelection:
    """Which objects are answered."""

    labels: int
    most: int
    """Places in the answer; unused places are empty."""
    score: float
    """Objects have to have more than this."""
    rows: int = 0
    """Images in every batch, if the graph states it; else 0."""
    overlap: float = 0
    """Share of two boxes' union from which on the better one suppresses the other (``anchors``)."""


def queries(selection: BoxSelection, *, background: bool) -> str:
    """logits [batch, queries, labels], pred_boxes [batch, queries, 4] → objects.

    ``background``: the last logit is of no object, and a query has one label, by softmax; else
    each label of each query is an object, by sigmoid. As ``post_process_object_detection`` of
    transformers' image processors.
    """
    count = selection.labels
    if background:
        candidates = f"""
    shares = Softmax <axis = 2> (logits32)
    from_first = Constant <value = int64[1] {{0}}> ()
    until_none = Constant <value = int64[1] {{{count}}}> ()
    of_labels = Constant <value = int64[1] {{2}}> ()
    objects = Slice (shares, from_first, until_none, of_labels)
    best, best_label = TopK <axis = 2> (objects, one)
    candidates = Reshape (best, as_row)
    candidate_labels = Reshape (best_label, as_row)"""
        chosen = _OWN_LABEL
    else:
        candidates = """
    shares = Sigmoid (logits32)
    candidates = Reshape (shares, as_row)"""
        chosen = f"""
    labels_each = Constant <value = int64 {{{count}}}> ()
    box_place = Div (place, labels_each)
    first_label = Mul (box_place, labels_each)
    label_place = Sub (place, first_label)"""
    width = count + 1 if background else count
    inputs = f"float[B, Q, {width}] logits, float[B, Q, 4] pred_boxes"
    before = f"""
    logits32 = Cast <to = 1> (logits)
    raw = Cast <to = 1> (pred_boxes){_CORNERS}{candidates}"""
    after = """
    in_shares = MatMul (picked, to_corners)
    in_pixels = Mul (in_shares, edges)"""
    return _head(inputs, before, chosen, after, selection)


def anchors(selection: BoxSelection, size: tuple[int, int]) -> str:
    """output0 [batch, 4 + labels, anchors] of a YOLO without its suppression → objects.

    ``size``: height and width of the letterbox, whose pixels the boxes are in. As ``non_max_suppression`` of
    Ultralytics: each box has its best label only, and suppresses boxes with the same label.
    """
    end = 4 + selection.labels
    before = f"""
    found = Cast <to = 1> (output0)
    of_box = Constant <value = int64[1] {{0}}> ()
    of_scores = Constant <value = int64[1] {{4}}> ()
    of_end = Constant <value = int64[1] {{{end}}}> ()
    across = Slice (found, of_box, of_scores, one)
    centers = Transpose <perm = [0, 2, 1]> (across)
    label_scores = Slice (found, of_scores, of_end, one){_CORNERS}
    raw = MatMul (centers, to_corners)
    best, best_label = TopK <axis = 1> (label_scores, one)
    best_row = Reshape (best, as_row)
    candidate_labels = Reshape (best_label, as_row)
    label_column = Reshape (best_label, as_column)
    label32 = Cast <to = 1> (label_column)
    apart = Constant <value = float {{{APART}}}> ()
    moved_by = Mul (label32, apart)
    separate = Add (raw, moved_by)
    most = Constant <value = int64[1] {{{selection.most}}}> ()
    overlap = Constant <value = float[1] {{{selection.overlap}}}> ()
    least_score = Constant <value = float[1] {{{selection.score}}}> ()
    kept = NonMaxSuppression (separate, best, most, overlap, least_score)
    image_and_box = Constant <value = int64[2] {{0, 2}}> ()
    which = Gather <axis = 1> (kept, image_and_box)
    surviving = GatherND (best_row, which)
    row_shape = Shape (best_row)
    none_yet = ConstantOfShape (row_shape)
    candidates = ScatterND (none_yet, which, surviving)"""
    return _head(f"float[B, {end}, A] output0", before, _OWN_LABEL, _unboxed(size), selection)


def finished(selection: BoxSelection, size: tuple[int, int]) -> str:
    """output0 [batch, boxes, 6] of corners, score and label → objects; ``size`` as in ``anchors``."""
    before = """
    found = Cast <to = 1> (output0)
    of_box = Constant <value = int64[1] {0}> ()
    of_scores = Constant <value = int64[1] {4}> ()
    of_label = Constant <value = int64[1] {5}> ()
    of_end = Constant <value = int64[1] {6}> ()
    last = Constant <value = int64[1] {2}> ()
    raw = Slice (found, of_box, of_scores, last)
    score_column = Slice (found, of_scores, of_label, last)
    candidates = Reshape (score_column, as_row)
    label_column = Slice (found, of_label, of_end, last)
    label_row = Reshape (label_column, as_row)
    candidate_labels = Cast <to = 7> (label_row)"""
    return _head("float[B, N, 6] output0", before, _OWN_LABEL, _unboxed(size), selection)


def _head(inputs: str, before: str, chosen: str, after: str, selection: BoxSelection) -> str:
    """The best candidates above the score, best first.

    The candidates are followed by zeros, so that there are always enough; nothing is above the score there.
    ``label_names`` ends with an empty name, that of no object.
    """
    labels, most, rows = selection.labels, selection.most, selection.rows or "B"
    return f"""detect ({inputs}, int64[B, 2] image_size, string[{labels + 1}] label_names)
        => (float[{rows}, {most}, 4] boxes, string[{rows}, {most}] labels, float[{rows}, {most}] scores,
            int32[{rows}, 1] count) {{
{_COMMON}{before}
    more = Constant <value = int64[4] {{0, 0, 0, {most}}}> ()
    enough = Pad (candidates, more)
    how_many = Constant <value = int64[1] {{{most}}}> ()
    best_scores, places = TopK <axis = 1> (enough, how_many)
    least = Constant <value = float {{{selection.score}}}> ()
    above = Greater (best_scores, least)
    place = Where (above, places, zero){chosen}
    no_label = Constant <value = int64 {{{labels}}}> ()
    label = Where (above, label_place, no_label)
    {_output("labels", "Gather <axis = 0> (label_names, label)", rows, most)}
    box_column = Reshape (box_place, as_column)
    corners_each = Constant <value = int64[3] {{1, 1, 4}}> ()
    of_corners = Expand (box_column, corners_each)
    picked = GatherElements <axis = 1> (raw, of_corners){after}
    above_column = Reshape (above, as_column)
    {_output("boxes", "Where (above_column, in_pixels, nought)", rows, most, 4)}
    {_output("scores", "Where (above, best_scores, nought)", rows, most)}
    found32 = Cast <to = 1> (above)
    summed = Constant <value = int64[2] {{{most}, 1}}> ()
    ones = ConstantOfShape <value = float[1] {{1}}> (summed)
    counted = MatMul (found32, ones)
    {_output("count", "Cast <to = 6> (counted)", rows, 1)}
}}"""


def _output(name: str, expression: str, *shape: int | str) -> str:
    """An output; a fixed number of rows by a Reshape: ONNX Runtime has to infer what is stated."""
    if isinstance(shape[0], str):
        return f"{name} = {expression}"
    sizes = f"Constant <value = int64[{len(shape)}] {{{', '.join(map(str, shape))}}}> ()"
    reshape = f"{name}_shape = {sizes}\n    {name} = Reshape ({name}_any, {name}_shape)"
    return f"{name}_any = {expression}\n    {reshape}"


def _unboxed(size: tuple[int, int]) -> str:
    """From pixels of the letterbox to pixels of the image, as ``scale_boxes`` of Ultralytics."""
    return f"""
    size64 = Cast <to = 11> (image_size)
    target = Constant <value = double[2] {{{size[0]}, {size[1]}}}> ()
    ratios = Div (target, size64)
    gain, _side = TopK <axis = 1, largest = 0> (ratios, one)
    exact = Mul (size64, gain)
    rounded = Round (exact)
    one64 = Constant <value = double {{1}}> ()
    placed = Max (rounded, one64)
    gains = Div (placed, size64)
    around = Sub (target, placed)
    half = Constant <value = double {{0.5}}> ()
    beside = Mul (around, half)
    tenth = Constant <value = double {{0.1}}> ()
    less = Sub (beside, tenth)
    before = Round (less)
    gains32 = Cast <to = 1> (gains)
    gains_row = Gather <axis = 1> (gains32, columns_rows)
    gains_four = Reshape (gains_row, as_four)
    before32 = Cast <to = 1> (before)
    before_row = Gather <axis = 1> (before32, columns_rows)
    before_four = Reshape (before_row, as_four)
    shifted = Sub (picked, before_four)
    scaled = Div (shifted, gains_four)
    inside = Max (scaled, nought)
    in_pixels = Min (inside, edges)"""
