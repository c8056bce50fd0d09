"""The faults: each one change of the text of one file, and the everyday tests that must notice it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Fault:
    id: str
    area: str
    what: str
    """What goes wrong for a user."""
    file: str
    """Below ``triton_repo_builder``."""
    old: str
    """Occurs exactly once in the file."""
    new: str
    tests: tuple[str, ...]
    """``file::function``, of what ``make test`` runs."""
    before: bool = True
    """Whether the tests of commit 4f20341 noticed."""


UNIT = "tests/unit"
INTEGRATION = "tests/integration"

FAULTS: tuple[Fault, ...] = (
    Fault(
        id="F01",
        area="read",
        what="a file of external weights that is cut off passes",
        file="model/graph/reader.py",
        old='for key in ("offset", "length"))',
        new='for key in ("length",))',
        tests=(f"{UNIT}/model/graph/test_reader.py::test_external_data_that_is_not_there",),
    ),
    Fault(
        id="F02",
        area="graph: ragged front",
        what="position ids begin at 1 instead of 0",
        file="model/graph/ragged.py",
        old="counted_real = Where (real, counted_from_0, zero)",
        new="counted_real = Where (real, counted, zero)",
        tests=(f"{UNIT}/model/graph/test_ragged.py::test_rows_of_any_length",),
    ),
    Fault(
        id="F03",
        area="graph: heads",
        what="a classifier's softmax is over the batch, not over the labels",
        file="model/graph/heads/pooling.py",
        old='"softmax": "scores = Softmax <axis = 1> (logits32)"',
        new='"softmax": "scores = Softmax <axis = 0> (logits32)"',
        tests=(f"{UNIT}/model/graph/test_heads.py::test_classification",),
    ),
    Fault(
        id="F04",
        area="tasks",
        what="labels are in the order of their numbers' spelling: 10 before 2",
        file="endpoint/tasks/support/labels.py",
        old='lines = (" ".join(numbers[number].splitlines()) for number in range(len(named)))',
        new='lines = (" ".join(numbers[number].splitlines()) for number in sorted(numbers, key=str))',
        tests=(f"{UNIT}/endpoint/tasks/test_text_classification.py::test_labels_are_sorted_by_number",),
    ),
    Fault(
        id="F05",
        area="golden",
        what="the tolerance of golden cases is 1000 times too wide",
        file="endpoint/golden/tolerance.py",
        old="ABSOLUTE = 1e-4",
        new="ABSOLUTE = 1e-1",
        tests=(f"{UNIT}/endpoint/golden/test_golden.py::test_tolerance_grows_with_float_answers_only",),
    ),
    Fault(
        id="F06",
        area="plan",
        what="the input of post-processing is not ragged: requests of other lengths are not joined",
        file="endpoint/plan/onnx_model.py",
        old="allow_ragged_batch=-1 in plan.dims",
        new="allow_ragged_batch=False",
        tests=(
            f"{UNIT}/endpoint/plan/test_onnx_model.py::"
            "test_post_processing_is_a_third_step_before_the_network_in_the_plan",
        ),
    ),
    Fault(
        id="F07",
        area="options",
        what="trb.toml overrides the flags of the command line",
        file="model/read/trb_toml.py",
        old="values = layered(read_toml(config) if config else {}, flags)",
        new="values = layered(flags, read_toml(config) if config else {})",
        tests=(f"{UNIT}/model/read/test_options.py::test_flags_override_the_file_which_overrides_defaults",),
    ),
    Fault(
        id="F08",
        area="render",
        what="a UINT16 tensor is INT16 in config.pbtxt",
        file="base/dtypes.py",
        old='_served(4, "uint16", 2, "uint16", "UINT16")',
        new='_served(4, "uint16", 2, "uint16", "INT16")',
        tests=(f"{UNIT}/base/test_dtypes.py::test_names_are_those_of_tritons_client",),
    ),
    Fault(
        id="F09",
        area="write",
        what="Ctrl-C during the swap leaves the repository half replaced",
        file="repository/journal/swap.py",
        old="    except BaseException:\n        if (stage / record.NAME)",
        new="    except Exception:\n        if (stage / record.NAME)",
        tests=(f"{UNIT}/repository/journal/test_swap.py::test_a_swap_is_undone_whichever_step_fails",),
    ),
    Fault(
        id="F10",
        area="write",
        what="an edit that keeps a file's size is overwritten without --force",
        file="produce/write/ownership.py",
        old="return file.stat().st_size == record.bytes and files.hash_file(file) == record.sha256",
        new="return file.stat().st_size == record.bytes",
        tests=(
            f"{UNIT}/produce/write/test_publish.py::test_an_edited_file_is_refused_and_force_replaces_it",
        ),
    ),
    Fault(
        id="F11",
        area="check",
        what="the rule lfs-pointer looks only at files smaller than any pointer",
        file="check/rules/layout.py",
        old="file.stat().st_size < 1024",
        new="file.stat().st_size < 120",
        tests=(f"{UNIT}/check/test_check.py::test_findings_are_the_expected_ones",),
    ),
    Fault(
        id="F12",
        area="check",
        what="the rule onnx-shape passes an output narrower than the graph's",
        file="check/rules/onnx_shapes.py",
        old='exact = pair.role == "output" and not _scattered(pair)',
        new="exact = False",
        tests=(f"{UNIT}/check/test_check.py::test_findings_are_the_expected_ones",),
    ),
    Fault(
        id="F13",
        area="client",
        what="HTTP 5xx counts as a refusal, so smoke accepts a server that breaks",
        file="run/client/http.py",
        old="REFUSED if 400 <= status < 500 else BROKEN",
        new="REFUSED if 400 <= status < 600 else BROKEN",
        tests=(f"{UNIT}/run/client/test_http.py::test_every_answer_but_the_wanted_one_is_one_error",),
    ),
    Fault(
        id="F14",
        area="serve",
        what="a trb that is killed leaves its tritonserver running",
        file="run/serve/embedded/supervisor.py",
        old="orphan = stopping = True",
        new="orphan = True",
        tests=(f"{INTEGRATION}/test_serve.py::test_the_server_does_not_outlive_a_killed_trb",),
    ),
    Fault(
        id="F15",
        area="serve",
        what="a model whose process died is loaded again by itself, not by way of its ensemble",
        file="run/serve/processes/watchdog.py",
        old="tuple(other for other in self._repository().needing(model) if other in loaded)",
        new="()",
        tests=(f"{INTEGRATION}/test_many_models.py::test_the_watch_knows_models_that_were_loaded_later",),
    ),
    Fault(
        id="F16",
        area="smoke",
        what="rows that the server lost do not show, only too many",
        file="run/smoke/concurrent.py",
        old="    if not expected <= counted <= expected + sent.samples(endpoint.sampled.get(model, 0)):",
        new="    if counted > expected + sent.samples(endpoint.sampled.get(model, 0)):",
        tests=(f"{UNIT}/run/smoke/test_concurrent.py::test_every_row_must_be_counted_once",),
        before=False,
    ),
    Fault(
        id="F17",
        area="cli",
        what="trb smoke --json exits with 0 whatever it finds",
        file="cli/smoke.py",
        old="return 0 if report.ok else int(Code.FAILED_CHECKS.exit)",
        new="return 0 if report.ok or output.as_json else int(Code.FAILED_CHECKS.exit)",
        tests=(f"{INTEGRATION}/test_smoke.py::test_a_wrong_recorded_number_fails",),
    ),
    Fault(
        id="F18",
        area="bench",
        what="rows per second counts requests where a request has several rows",
        file="measure/bench/level.py",
        old="rows_per_second=whole.throughput * options.rows",
        new="rows_per_second=whole.throughput",
        tests=(f"{UNIT}/measure/bench/test_level.py::test_rows_per_second_are_of_all_rows_of_a_request",),
        before=False,
    ),
    Fault(
        id="F19",
        area="deploy",
        what="a promotion that is taken back leaves the new version in manifest.json",
        file="repository/journal/undo.py",
        old="        for entry in self.journal.entries:\n            for unfinished",
        new='        for entry in self.journal.entries:\n            if entry.path == "manifest.json":\n'
        "                continue\n            for unfinished",
        tests=(
            f"{UNIT}/ship/deploy/test_live.py::test_a_promotion_that_fails_leaves_no_file_of_the_new_version",
        ),
    ),
    Fault(
        id="F20",
        area="versions",
        what="steps are not pinned: an old tokenizer meets a new model during a promotion",
        file="repository/pbtxt.py",
        old="(item.value_start, item.end, str(number))",
        new='(item.value_start, item.end, "-1")',
        tests=(
            f"{UNIT}/produce/write/test_versions.py::"
            "test_the_next_version_is_not_served_and_changes_nothing_of_the_first",
        ),
    ),
    Fault(
        id="F21",
        area="vcs",
        what="a commit that somebody else makes at the same moment is lost from the branch",
        file="ship/vcs/commit.py",
        old='f"refs/heads/{target.branch}", sha, target.old)',
        new='f"refs/heads/{target.branch}", sha)',
        tests=(f"{INTEGRATION}/test_commit.py::test_a_commit_that_comes_in_between_is_not_undone",),
        before=False,
    ),
    Fault(
        id="F22",
        area="stores",
        what="a damaged blob of the right size in a registry is taken for a good one",
        file="ship/stores/registry.py",
        old="if self._client.size(digest) != size or self._client.digest(digest, size) != digest:",
        new="if self._client.size(digest) != size:",
        tests=(
            f"{INTEGRATION}/test_push_registry_damage.py::"
            "test_a_damaged_blob_is_named_and_repaired_once_it_is_out_of_the_way",
        ),
    ),
    Fault(
        id="F23",
        area="runtime: tokenizer",
        what="input ids are padded with 0 instead of the tokenizer's pad id",
        file="runtime/tokenizer.py",
        old='{"input_ids": self.pad_id, TOKENS: PAD}.get(name, 0)',
        new='{"input_ids": 0, TOKENS: PAD}.get(name, 0)',
        tests=(f"{UNIT}/runtime/test_tokenizer_model.py::test_the_longest_row_of_each_request_decides",),
    ),
    Fault(
        id="F24",
        area="runtime: onnxruntime",
        what="the first request of a batch gets the answers of all requests in it",
        file="runtime/onnxruntime_backend/ort_runner.py",
        old="return array if start == 0 and end == count else array[start:end]",
        new="return array if start == 0 else array[start:end]",
        tests=(
            f"{UNIT}/runtime/test_onnxruntime_backend_modules.py::"
            "test_requests_are_one_run_and_get_what_they_asked_for",
        ),
    ),
    Fault(
        id="F25",
        area="container image",
        what="entrypoint.sh is not executable in the image if the wheel lost that",
        file="ship/container_image/context.py",
        old='0o755 if path.suffix == ".sh" or os.access(path, os.X_OK) else 0o644',
        new="0o644",
        tests=(
            f"{UNIT}/ship/container_image/test_context.py::test_scripts_are_executable_whatever_the_disk_says",
        ),
    ),
)
