"""Models of an MLflow server, by its REST API: a version or a run, its facts, its files.

https://mlflow.org/docs/latest/api_reference/rest-api.html. Its own settings apply: ``MLFLOW_TRACKING_URI``,
``MLFLOW_REGISTRY_URI``, ``MLFLOW_TRACKING_TOKEN``, ``MLFLOW_TRACKING_USERNAME`` and ``_PASSWORD``. The API
needs three requests, and MLflow's client two dozen packages.
"""

from __future__ import annotations

import base64
import http.client
import os
import urllib.error
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import quote, urlencode, urlsplit, urlunsplit

from triton_repo_builder.base import files, transfer
from triton_repo_builder.base.errors import Code, TrbError
from triton_repo_builder.ship.origins.address import OfRun, Registered
from triton_repo_builder.ship.stores import external_weights

API = "api/2.0/mlflow"
ARTIFACTS = "api/2.0/mlflow-artifacts/artifacts"
MOST = 10_000
"""Files of a model."""
SET = "set MLFLOW_TRACKING_URI to the address of the server, e.g. http://localhost:5000"
OWN_TAGS = "mlflow."
"""Beginning of tags that MLflow itself sets."""


@dataclass(frozen=True, kw_only=True)
class Found:
    """A model on a server."""

    artifacts: str
    """URI of its folder."""
    run: str = ""
    """The page of its training run."""
    data: str = ""
    """Data sets that the run used, ``NAME@DIGEST``."""
    labels: Mapping[str, str] = field(default_factory=dict)
    """Tags, and which version it is."""
    name: str = ""


@dataclass(frozen=True, kw_only=True)
class Server:
    """An MLflow server."""

    url: str
    location: str
    """The address that the user gave, for messages."""

    def find(self, address: Registered | OfRun) -> Found:
        """The model of an address. Raises ``TrbError``."""
        if isinstance(address, OfRun):
            return self._of_run(address)
        version = self._version(address)
        number, run = str(version["version"]), str(version.get("run_id") or "")
        query = {"name": address.name, "version": number}
        uri = self.get("model-versions/get-download-uri", **query)["artifact_uri"]
        record = self._run(run) if run else Found(artifacts="")
        labels = {**record.labels, **_tags(version.get("tags"))}
        labels["mlflow.model"] = f"{address.name}/{number}"
        return Found(
            artifacts=self._model_folder(str(uri)),
            run=record.run,
            data=record.data,
            labels=labels,
            name=address.name,
        )

    def _version(self, address: Registered) -> dict[str, Any]:
        if address.alias:
            answer = self.get("registered-models/alias", name=address.name, alias=address.alias)
            return dict(answer["model_version"])
        if address.version:
            answer = self.get("model-versions/get", name=address.name, version=address.version)
            return dict(answer["model_version"])
        newest = address.stage.lower() == "latest"
        filter_string = f"name='{address.name}'"
        listed = self.get("model-versions/search", filter=filter_string, max_results="1000")
        versions = [
            each
            for each in listed.get("model_versions", ())
            if newest or str(each.get("current_stage", "")).lower() == address.stage.lower()
        ]
        if not versions:
            raise self._missing(f"no version of '{address.name}' is in stage '{address.stage}'")
        return dict(max(versions, key=lambda each: int(each["version"])))

    def _of_run(self, address: OfRun) -> Found:
        run = self.get("runs/get", run_id=address.run)["run"]
        record = self._run(address.run)
        for output in run.get("outputs", {}).get("model_outputs", ()):  # MLflow 3 keeps models beside runs
            info = self.get(f"logged-models/{output['model_id']}")["model"]["info"]
            if info.get("name") == address.path:
                return Found(**{**vars(record), "artifacts": info["artifact_uri"], "name": address.path})
        uri = f"{run['info']['artifact_uri']}/{address.path}"
        return Found(**{**vars(record), "artifacts": uri, "name": address.path.rpartition("/")[2]})

    def _run(self, run: str) -> Found:
        """The facts of a run, for the models that it logged."""
        answer = self.get("runs/get", run_id=run)["run"]
        experiment = answer["info"]["experiment_id"]
        inputs = answer.get("inputs", {}).get("dataset_inputs", ())
        data = [f"{each['dataset']['name']}@{each['dataset']['digest']}" for each in inputs]
        return Found(
            artifacts="",
            run=f"{shown(self.url)}/#/experiments/{experiment}/runs/{run}",
            data=" ".join(data),
            labels=_tags(answer.get("data", {}).get("tags")),
        )

    def _model_folder(self, uri: str) -> str:
        """The folder of a version: MLflow 3 may name a logged model."""
        if uri.startswith("models:/m-"):
            identity = uri.removeprefix("models:/")
            return str(self.get(f"logged-models/{identity}")["model"]["info"]["artifact_uri"])
        return uri

    def files(self, folder: str) -> Iterator[tuple[str, str]]:
        """(path below the folder, URL) of each file of ``mlflow-artifacts:/FOLDER``. Raises ``TrbError``."""
        root = _path(folder)
        waiting, seen = [""], 0
        while waiting:
            inner = waiting.pop()
            listed = self._json(
                f"{self.url}/{ARTIFACTS}?{urlencode({'path': f'{root}/{inner}'.rstrip('/')})}"
            )
            for entry in listed.get("files", ()):
                name = f"{inner}/{str(entry['path']).rpartition('/')[2]}".lstrip("/")
                transfer.check_inside(name, folder)
                seen += 1
                if seen > MOST:
                    raise TrbError(
                        Code.STORAGE_FAILED,
                        f"more than {MOST:,} files",
                        where=self.location,
                        remedy="is it a model?",
                    )
                if entry.get("is_dir"):
                    waiting.append(name)
                else:
                    yield name, f"{self.url}/{ARTIFACTS}/{quote(f'{root}/{name}')}"

    def get(self, route: str, **query: str) -> dict[str, Any]:
        """An answer of the API. Raises ``TrbError``."""
        return self._json(f"{self.url}/{API}/{route}" + (f"?{urlencode(query)}" if query else ""))

    def _json(self, url: str) -> dict[str, Any]:
        try:
            answer = files.load_json(external_weights.document(url, headers()))
        except urllib.error.HTTPError as error:
            raise self._refused(error) from None
        except (OSError, http.client.HTTPException) as error:
            reason = getattr(error, "reason", None) or error
            raise TrbError(
                Code.STORAGE_UNREACHABLE,
                f"the MLflow server {shown(self.url)} cannot be reached: {reason}",
                where=self.location,
                remedy="check MLFLOW_TRACKING_URI and the network",
            ) from None
        except files.DAMAGED:
            answer = None
        if not isinstance(answer, dict):
            raise self._failed("answers with no JSON: it is no MLflow server")
        return answer

    def _refused(self, error: urllib.error.HTTPError) -> TrbError:
        with error:
            body = error.read(transfer.DOCUMENT)
        try:
            said = str(files.load_json(body)["message"]).splitlines()[0][:300]
        except (LookupError, TypeError, *files.DAMAGED):
            said = f"HTTP {error.code} {error.reason}"
        if error.code in (401, 403):
            remedy = "set MLFLOW_TRACKING_TOKEN, or MLFLOW_TRACKING_USERNAME and MLFLOW_TRACKING_PASSWORD"
            return TrbError(
                Code.ACCESS_DENIED, f"the MLflow server refuses: {said}", where=self.location, remedy=remedy
            )
        if error.code == 404 or (error.code == 400 and "not found" in said):  # of an alias
            return self._missing(said)
        return self._failed(f"answers {error.code}: {said}")

    def _missing(self, said: str) -> TrbError:
        remedy = f"check the name; the server is {shown(self.url)}"
        return TrbError(
            Code.NOT_FOUND, f"the MLflow server has no such model: {said}", where=self.location, remedy=remedy
        )

    def _failed(self, said: str) -> TrbError:
        message = f"the MLflow server {shown(self.url)} {said}"
        return TrbError(Code.STORAGE_FAILED, message, where=self.location, remedy="check MLFLOW_TRACKING_URI")


def server(location: str, *, registry: bool) -> Server:
    """The server that MLflow's variables name. Raises ``TrbError`` USAGE."""
    names = ("MLFLOW_REGISTRY_URI", "MLFLOW_TRACKING_URI") if registry else ("MLFLOW_TRACKING_URI",)
    url = next((value for name in names if (value := os.environ.get(name))), "")
    if urlsplit(url).scheme not in ("http", "https"):
        stated = f"{names[-1]} is {url!r}, no address of a server" if url else f"{names[-1]} is not set"
        raise TrbError(Code.USAGE, stated, where=location, remedy=SET)
    return Server(url=url.rstrip("/"), location=location)


def headers() -> dict[str, str]:
    """Headers with the login that MLflow's variables name."""
    if token := os.environ.get("MLFLOW_TRACKING_TOKEN"):
        return {"Authorization": f"Bearer {token}"}
    name, password = (os.environ.get(f"MLFLOW_TRACKING_{part}", "") for part in ("USERNAME", "PASSWORD"))
    if not name:
        return {}
    return {"Authorization": f"Basic {base64.b64encode(f'{name}:{password}'.encode()).decode()}"}


def shown(url: str) -> str:
    """An address without what may be secret in it."""
    parts = urlsplit(url)
    host = parts.netloc.rpartition("@")[2]
    return urlunsplit((parts.scheme, host, parts.path, "", ""))


def _path(uri: str) -> str:
    return urlsplit(uri).path.strip("/")


def _tags(tags: Any) -> dict[str, str]:
    """Tags of a user."""
    listed = {str(tag["key"]): str(tag.get("value", "")) for tag in tags or ()}
    return {key: value for key, value in listed.items() if not key.startswith(OWN_TAGS) and value}
