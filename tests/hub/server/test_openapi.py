"""The description of the API: valid, complete, true of random requests, and good for clients."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import openapi_spec_validator
import pytest

from dlv.hub.server import serving
from dlv.hub.server.openapi import describe
from tests.hub.server.site import Site

pytestmark = pytest.mark.filterwarnings("ignore")  # of the tools


def _description() -> dict[str, Any]:
    return json.loads(json.dumps(describe(serving.all_routes(), "https://hub.example.org")))  # type: ignore[no-any-return]


def test_the_description_is_valid() -> None:
    openapi_spec_validator.validate(_description())


def test_every_success_with_a_body_has_a_schema() -> None:
    names = []
    for path, methods in _description()["paths"].items():
        for method, operation in methods.items():
            names.append(operation["operationId"])
            answers = operation["responses"]
            assert operation["summary"], path
            successes = [answers[code] for code in answers if code in ("200", "201")]
            empty = "/uploads/" in path
            assert empty or not successes or any("content" in each for each in successes), (
                method, path,
            )  # fmt: skip
    assert len(names) == len(set(names))


@pytest.mark.slow
def test_a_client_can_be_generated(tmp_path: Path) -> None:
    """Without an error or a warning, and Python compiles it."""
    description = tmp_path / "openapi.json"
    description.write_text(json.dumps(_description()))
    program = Path(sys.executable).parent / "openapi-python-client"
    words = [
        str(program), "generate", "--path", str(description), "--output-path",
        str(tmp_path / "client"), "--meta", "none", "--fail-on-warning",
    ]  # fmt: skip
    environ = {**os.environ, "PATH": f"{program.parent}:{os.environ['PATH']}"}
    made = subprocess.run(
        words, capture_output=True, text=True, cwd=tmp_path, check=False, env=environ
    )
    assert made.returncode == 0, made.stdout + made.stderr
    subprocess.run([sys.executable, "-m", "compileall", "-q", str(tmp_path / "client")], check=True)
    assert len(list((tmp_path / "client" / "api").rglob("*.py"))) > 40


def _random_requests(tmp_path: Path, examples: int) -> int:
    """Send random requests that the description allows or forbids; return their number."""
    import hypothesis
    import schemathesis
    from schemathesis.checks import not_a_server_error
    from schemathesis.specs.openapi.checks import (
        content_type_conformance,
        response_schema_conformance,
        status_code_conformance,
    )

    site = Site(tmp_path, f"sqlite:///{tmp_path / 'hub.db'}")
    site.user("root", operator=True)
    site.fill(site.repository("root/net", "private", "root"), "root")
    token = site.token("root")
    checks = [
        not_a_server_error, content_type_conformance, response_schema_conformance,
        status_code_conformance,
    ]  # fmt: skip
    schema = schemathesis.openapi.from_dict(_description())
    schema.app = site.app
    count = 0
    for operation in schema.get_all_operations():
        strategy = operation.ok().as_strategy()

        @hypothesis.settings(
            max_examples=examples, derandomize=True, database=None, deadline=None,
            suppress_health_check=list(hypothesis.HealthCheck),
        )  # fmt: skip
        @hypothesis.given(case=strategy)
        def send(case: Any) -> None:
            nonlocal count
            count += 1
            for name, known in (("namespace", "root"), ("repository", "net"), ("name", "net")):
                if name in (case.path_parameters or {}) and count % 3:
                    case.path_parameters[name] = known
            headers = {"Authorization": f"Bearer {token}"} if count % 4 else {}
            response = case.call(headers=headers)
            case.validate_response(response, checks=checks)

        send()
    errors = [line for line in site.errors() if '"status": 503' not in line]
    assert errors == []
    site.close()
    return count


def test_random_requests(tmp_path: Path) -> None:
    assert _random_requests(tmp_path, 4) > 100


@pytest.mark.slow
def test_many_random_requests(tmp_path: Path) -> None:
    assert _random_requests(tmp_path, 25) > 600
