"""How the pods get the model repository: from their image, a bucket, a registry or git."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

from triton_repo_builder.base.errors import Code, TrbError
from triton_repo_builder.ship import stores
from triton_repo_builder.ship.stores.bucket import REVISIONS
from triton_repo_builder.ship.stores.location import Bucket, Image
from triton_repo_builder.ship.targets import server
from triton_repo_builder.ship.targets.facts import Deployment
from triton_repo_builder.ship.targets.manifests.values import size
from triton_repo_builder.ship.targets.spec import MEBI, wrong

FOLDER = "/repository"
"""The empty volume in the init container; its folder ``models`` is mounted at ``/models``."""
CREDENTIALS = "/etc/trb/credentials"
GIT = """\
set -eu
rm -rf "$0"
git init -q "$0"
cd "$0"
git remote add origin "$1"
if command -v git-lfs > /dev/null; then git lfs install --local > /dev/null; fi
git fetch -q --depth 1 origin "$2"
git checkout -q FETCH_HEAD -- "$3"
rm -rf ../models
mv "$3" ../models
rm -rf "$0"
"""
"""One commit of a repository, with the files of git-lfs; no history stays."""


@dataclass(frozen=True, kw_only=True)
class Access:
    """The repository in a pod."""

    models: str = server.MODELS
    """Value of ``--model-repository``."""
    fetch: tuple[str, ...] = ()
    """Arguments of the init container that fetches it."""
    image_volume: str = ""
    """Reference of an image that can be mounted instead."""
    environment: Mapping[str, str] = field(default_factory=dict)
    """Variables of the init container."""
    secret: str = ""
    """An optional Secret with credentials."""
    renamed: Mapping[str, str] = field(default_factory=dict)
    """Keys of the Secret that are mounted by another name."""
    size: str = ""
    """Size of the volume that it is fetched into."""
    bucket: str = ""
    """Scheme of the bucket that is read."""
    fetcher: str = "fetch_image"
    """Image of the init container, by its name in the templates."""

    @property
    def mounted(self) -> bool:
        """Whether the Secret is mounted in the init container."""
        return bool(self.secret) and not self.bucket


def access(deployment: Deployment) -> Access:
    """How pods get the repository. Raises ``TrbError``: USAGE, BAD_LOCATION, DIGEST_MISMATCH."""
    source = deployment.spec.repository.source
    readers: Mapping[str, Callable[[Deployment], Access]] = {
        "folder": _folder,
        "image": lambda _: Access(),
        "git": _git,
        "oci": _oci,
    }
    return readers.get(source.kind, _bucket)(deployment)


def for_gateway(deployment: Deployment) -> Access:
    """How the gateway and trb smoke get the repository: since the server lists its models for holders of the
    admin key only, they read its names, labels and golden cases there. Raises ``TrbError`` USAGE.
    """
    spec = deployment.spec
    if spec.repository.source.kind == "image":
        if spec.gateway.image == deployment.image:
            return Access()
        copy = ("cp", "-r", server.MODELS, f"{FOLDER}/models")
        return Access(fetch=copy, size=_room(deployment), fetcher="image")
    common = access(deployment)
    if not common.bucket:
        return common
    if not spec.kubernetes.fetch_image:
        raise wrong(
            deployment.file,
            "'gateway.image' needs the repository, and only Triton reads the bucket",
            "name an image with triton_repo_builder[push] in kubernetes.fetch_image, or leave out the "
            "gateway",
        )
    pull = ("trb", "pull", spec.repository.source.location, f"{FOLDER}/models")
    return replace(common, fetch=pull, environment={"HOME": "/tmp"}, size=_room(deployment))


def _folder(deployment: Deployment) -> Access:
    raise wrong(
        deployment.file,
        "'repository.source' is folder, which the nodes of a cluster do not have",
        'push it and name the place, source = "oci://…@sha256:…" (trb push); or build it into the image, '
        'source = "image" (trb image build --repository)',
    )


def _oci(deployment: Deployment) -> Access:
    place = stores.parse(deployment.spec.repository.source.location)
    assert isinstance(place, Image)
    spec = deployment.spec
    if not spec.kubernetes.fetch_image and not spec.gateway.image:
        raise wrong(
            deployment.file,
            "'repository.source' is an image of a registry, and no image has trb to fetch it",
            "name one in gateway.image or kubernetes.fetch_image: trb image build --gateway",
        )
    return Access(
        fetch=("trb", "pull", str(place), f"{FOLDER}/models"),
        image_volume=f"{place.registry}/{place.repository}@sha256:{place.revision}",
        environment={"HOME": "/tmp", "DOCKER_CONFIG": CREDENTIALS},
        secret=f"{deployment.name}-repository",
        renamed={".dockerconfigjson": "config.json"},
        size=_room(deployment),
    )


def _git(deployment: Deployment) -> Access:
    source = deployment.spec.repository.source
    if source.url.startswith("ssh:"):
        raise wrong(
            deployment.file,
            "'repository.source' is reached by ssh, whose keys and hosts a pod does not have",
            "write git+https://…; a token goes into the Secret (docs/deploy.md)",
        )
    if not deployment.spec.kubernetes.fetch_image:
        raise wrong(
            deployment.file,
            "'repository.source' is git, and no image with git is named",
            "name one in kubernetes.fetch_image (git-lfs is needed if the weights are there)",
        )
    return Access(
        fetch=("sh", "-c", GIT, f"{FOLDER}/git", source.url, source.commit, source.folder),
        environment={
            "HOME": "/tmp",
            "GIT_TERMINAL_PROMPT": "0",
            # https://git-scm.com/docs/git-credential-store: lines https://USER:TOKEN@HOST
            "GIT_CONFIG_COUNT": "1",
            "GIT_CONFIG_KEY_0": "credential.helper",
            "GIT_CONFIG_VALUE_0": f"store --file={CREDENTIALS}/git-credentials",
        },
        secret=f"{deployment.name}-repository",
        # The checkout and, for a moment, git's own copy.
        size=_room(deployment, copies=3),
    )


def _bucket(deployment: Deployment) -> Access:
    place = stores.parse(deployment.spec.repository.source.location)
    assert isinstance(place, Bucket)
    if place.revision != deployment.revision:
        raise TrbError(
            Code.DIGEST_MISMATCH,
            f"'repository.source' is revision sha256:{place.revision[:12]}…, but "
            f"{deployment.repository.path} is sha256:{deployment.revision[:12]}…",
            where=str(deployment.file),
            remedy="push the folder and name what trb push prints, or pull that revision into the folder",
        )
    # https://github.com/triton-inference-server/server/blob/main/docs/user_guide/model_repository.md
    host = f"{place.endpoint}/" if place.endpoint else ""
    # Triton wants the account in the address; it comes from the Secret.
    start = "as://$(AZURE_STORAGE_ACCOUNT)/" if place.scheme == "az" else f"{place.scheme}://{host}"
    return Access(
        models=f"{start}{place.root}/{REVISIONS}/{place.revision}",
        secret=f"{deployment.name}-repository",
        bucket=place.scheme,
    )


def _room(deployment: Deployment, copies: int = 2) -> str:
    """A volume for the repository, and for what is half there while it is fetched again."""
    return size(copies * total(deployment) + 64 * MEBI)


def total(deployment: Deployment) -> int:
    """Bytes of the repository's files."""
    return sum(path.stat().st_size for path in deployment.repository.path.rglob("*") if path.is_file())
