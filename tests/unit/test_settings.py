"""Settings: environment overrides file overrides default; one sentence for an invalid value."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from sixfold import settings
from sixfold.settings import InvalidSetting


def test_environment_overrides_file_and_file_the_default(tmp_path: Path) -> None:
    (tmp_path / "sixfold.toml").write_text("queue_limit = 5\nworkers = 3\n[prices.ra1]\nusd = '0.05'\n")
    read = settings.load({"SIXFOLD_DATA_DIR": str(tmp_path), "SIXFOLD_WORKERS": "7"})
    assert (read.queue_limit, read.workers, read.max_attempts) == (5, 7, 3)
    assert read.tables["prices"] == {"ra1": {"usd": "0.05"}}


def test_error_of_a_table_is_an_invalid_setting() -> None:
    with (
        pytest.raises(InvalidSetting, match="\\[search\\] is wrong") as raised,
        InvalidSetting.of(ValueError),
    ):
        raise ValueError("[search] is wrong")
    assert isinstance(raised.value.__cause__, ValueError)
    with pytest.raises(KeyError), InvalidSetting.of(ValueError):
        raise KeyError("search")


@pytest.mark.parametrize(
    ("environ", "sentence"),
    [
        ({"SIXFOLD_PORT": "high"}, "SIXFOLD_PORT must be a whole number (got 'high')"),
        ({"SIXFOLD_PORT": "70000"}, "port must be 0 to 65535"),
        ({"SIXFOLD_TESTING": "maybe"}, "SIXFOLD_TESTING must be 0 or 1 (got 'maybe')"),
        ({"SIXFOLD_DRIVER": "rocket"}, "SIXFOLD_DRIVER must be process or inline or ray (got 'rocket')"),
        ({"SIXFOLD_AREAS": "media,moon"}, "areas has an unknown entry 'moon'"),
        ({"SIXFOLD_FAILPOINTS": "engine.run.ra1=fail"}, "requires SIXFOLD_TESTING=1"),
        ({"SIXFOLD_CONFIG": "/nowhere/sixfold.toml"}, "configuration file /nowhere/sixfold.toml not found"),
    ],
)
def test_invalid_setting_is_named_in_the_error(
    tmp_path: Path, environ: dict[str, str], sentence: str
) -> None:
    with pytest.raises(InvalidSetting, match=re.escape(sentence)):
        settings.load({"SIXFOLD_DATA_DIR": str(tmp_path), **environ})


def test_an_unknown_setting_of_the_file_is_named(tmp_path: Path) -> None:
    (tmp_path / "sixfold.toml").write_text("que_limit = 5\n")
    with pytest.raises(InvalidSetting, match="unknown setting 'que_limit'"):
        settings.load({}, data_dir=tmp_path)


def test_previews_serve_on_loopback_or_when_allowed(tmp_path: Path) -> None:
    home = settings.load({}, data_dir=tmp_path)
    public = home.replace(host="0.0.0.0", public_url="https://example.com")
    assert home.previews_allowed
    assert not public.previews_allowed
    assert public.replace(previews="allow").previews_allowed


def test_worker_environment_has_no_secrets() -> None:
    environ = {
        "PATH": "/bin",
        "SIXFOLD_API_KEY": "sf_x",
        "OPENAI_API_KEY": "sk",
        "AWS_SECRET_ACCESS_KEY": "x",
    }
    assert settings.worker_environment(environ) == {"PATH": "/bin"}


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("WORKERS", "-1", "workers must be 0 to 1024"),
        ("WORKERS", "1000000", "workers must be 0 to 1024"),
        ("LEASE_SECONDS", "nan", "lease_seconds must be at least"),
        ("LEASE_SECONDS", "0", "lease_seconds must be at least"),
        ("RUN_LIMIT_SECONDS", "-5", "run_limit_seconds must be at least"),
        ("BLOB_SECONDS", "inf", "blob_seconds must be at least"),
        ("MEMORY_INDEX_BYTES", "-1", "memory_index_bytes must be at least 0"),
        ("COMFYUI_URL", "file:///etc/passwd", "comfyui_url must be an origin"),
        ("FAL_KEY", "ключ", "fal_key must not contain spaces"),
        ("PREVIEWS", "maybe", "must be allow"),
        ("DRIVER", "banana", "must be process or inline"),
        ("SPACE_ENDPOINT", "http://127.0.0.1:x{name}", "space_endpoint must be a URL"),
        ("SPACE_ENDPOINT", "http://127.0.0.1:7860{name}", "space_endpoint must be a URL"),
    ],
)
def test_unusable_setting_prevents_the_start(name: str, value: str, message: str) -> None:
    with pytest.raises(InvalidSetting, match=message):
        settings.load({f"SIXFOLD_{name}": value})


@pytest.mark.parametrize("name", ["COMFYUI_URL", "COMFYUI_URLS", "OTEL_ENDPOINT", "HUB_URL", "PUBLIC_URL"])
@pytest.mark.parametrize("url", ["http://ann:se/cret@box:1", "http://box:1?key=secret", "ann:secret@box:1"])
def test_error_about_an_address_shows_no_password(name: str, url: str) -> None:
    with pytest.raises(InvalidSetting, match="such as http") as caught:
        settings.load({f"SIXFOLD_{name}": url})
    assert ("secret" in str(caught.value), "cret" in str(caught.value)) == (False, False)
    assert "box:1" in str(caught.value)


@pytest.mark.parametrize("text", ["gpu-box,10.0.0.5", "gpu-box , 10.0.0.5,"])
def test_hosts_to_probe_are_a_list(text: str) -> None:
    assert settings.load({"SIXFOLD_PROBE_HOSTS": text}).probe_hosts == ("gpu-box", "10.0.0.5")


def test_hosts_to_probe_may_be_in_the_file_and_of_version_6(tmp_path: Path) -> None:
    (tmp_path / "sixfold.toml").write_text('probe_hosts = ["gpu_box.lan", "fd00::5"]\n')
    assert settings.load({}, data_dir=tmp_path).probe_hosts == ("gpu_box.lan", "fd00::5")


@pytest.mark.parametrize(
    "text",
    ["http://gpu-box", "gpu-box:11434", "gpu box", "a/b", "-x", "user@host", "x" * 300, "fe80::1%eth0"],
)
def test_invalid_probe_host_is_named_in_the_error(text: str) -> None:
    with pytest.raises(InvalidSetting, match="probe_hosts must be host names or addresses such as gpu-box"):
        settings.load({"SIXFOLD_PROBE_HOSTS": text})


def test_hosts_to_probe_are_limited() -> None:
    with pytest.raises(InvalidSetting, match="at most 16 entries"):
        settings.load({"SIXFOLD_PROBE_HOSTS": ",".join(f"host{number}" for number in range(17))})
