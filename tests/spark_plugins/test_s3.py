from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

import pytest

from epochal.spark_plugins import java_jars, s3
from epochal.spark_plugins.s3 import HADOOP, s3_settings, store_settings
from epochal.spark_plugins.store_checkpoints import MANAGER, SETTING

SECRETS = {"AWS_ACCESS_KEY_ID": "AKIA-ours", "AWS_SECRET_ACCESS_KEY": "secret-ours", "AWS_SESSION_TOKEN": "token-ours"}


def test_the_jars_are_those_of_pysparks_hadoop() -> None:
    spec = find_spec("pyspark")
    assert spec is not None
    assert spec.origin is not None

    assert Path(spec.origin).with_name("jars").joinpath(f"hadoop-client-api-{HADOOP}.jar").exists()


def test_settings_say_where_the_store_is_and_have_no_credentials() -> None:
    found = store_settings({**SECRETS, "AWS_ENDPOINT_URL": "http://127.0.0.1:9000"})

    assert found["spark.hadoop.fs.s3a.endpoint"] == "http://127.0.0.1:9000"
    assert found["spark.hadoop.fs.s3a.endpoint.region"] == "us-east-1"
    assert found["spark.hadoop.fs.s3a.path.style.access"] == "true"
    assert found["spark.hadoop.fs.s3a.connection.ssl.enabled"] == "false"
    assert not any("ours" in value for value in found.values())


def test_without_an_endpoint_it_is_amazons_in_the_region_of_the_environment() -> None:
    found = store_settings({**SECRETS, "AWS_DEFAULT_REGION": "eu-central-1"})

    assert found["spark.hadoop.fs.s3a.endpoint.region"] == "eu-central-1"
    assert not any(name.endswith((".endpoint", "path.style.access")) for name in found)


def test_the_endpoint_of_s3_alone_comes_before_that_of_all_services() -> None:
    endpoints = {"AWS_ENDPOINT_URL": "https://all", "AWS_ENDPOINT_URL_S3": "https://s3.internal"}

    assert store_settings(endpoints)["spark.hadoop.fs.s3a.endpoint"] == "https://s3.internal"


def test_a_web_identity_is_asked_for_only_where_there_is_one() -> None:
    name = "spark.hadoop.fs.s3a.aws.credentials.provider"

    assert "WebIdentity" not in store_settings({})[name]
    assert "WebIdentity" in store_settings({"AWS_WEB_IDENTITY_TOKEN_FILE": "/var/run/token"})[name]


def test_what_the_user_has_set_stays_in_effect(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(s3, "fetched", lambda _: [Path("/cache/hadoop-aws.jar")])
    monkeypatch.setattr(s3, "staging_jar", lambda: [Path("/cache/staging.jar")])
    monkeypatch.setattr(java_jars, "compiled", lambda *_: Path("/cache/checkpoints.jar"))
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9000")

    given = {"spark.jars": "/mine.jar", "spark.hadoop.fs.s3a.endpoint": "https://mine"}
    found = s3_settings(given)

    assert found["spark.jars"] == "/mine.jar,/cache/hadoop-aws.jar,/cache/staging.jar,/cache/checkpoints.jar"
    assert "spark.hadoop.fs.s3a.endpoint" not in found
    assert found[SETTING] == MANAGER
    assert s3_settings({**given, SETTING: "my.Manager"})[SETTING] == "my.Manager"
