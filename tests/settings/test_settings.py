import string
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from snapapp.errors import SettingsError
from snapapp.jobs.settings import JobsSettings, RetrySettings
from snapapp.settings import loading
from snapapp.settings.env_file import DEFAULT_ENV_FILE, EnvFile, Origin
from snapapp.settings.explained import explain
from snapapp.settings.loading import from_environment, load
from snapapp.settings.table import TABLE, Environment, LogFormat, LogLevel, Settings

PROD = {
    "ENV": "prod",
    "DATABASE_URL": "postgresql://db/snaps",
    "DATA_DIR": "/srv/snapapp",
    "INTERNAL_TOKEN": "a-token-for-the-tests",
    "SIGNING_SECRET": "a-secret-of-the-tests-that-signs-links",
}


def of(file: EnvFile | None = None, /, **variables: str) -> Settings:
    return load({f"SNAPAPP_{name}": value for name, value in variables.items()}, file)


def mistakes(file: EnvFile | None = None, /, **variables: str) -> list[str]:
    with pytest.raises(SettingsError) as caught:
        of(file, **variables)
    return caught.value.mistakes


def env_file(*lines: str) -> EnvFile:
    return EnvFile.parse("\n".join(lines).encode(), "snapapp.env")


# --- Defaults and values ------------------------------------------------------------------------------------


def test_an_empty_environment_gives_the_defaults() -> None:
    settings = load({})
    assert settings == Settings()
    assert settings.warnings == ()
    assert (settings.env, settings.host, settings.port) == (Environment.DEV, "127.0.0.1", 8000)
    assert (settings.database_url, settings.worker_enabled, settings.worker_id) == (None, True, None)


def test_the_defaults_are_those_of_the_queue() -> None:
    assert queues_part(Settings()) == JobsSettings(database_url="postgresql://db")


def queues_part(settings: Settings) -> JobsSettings:
    return replace(settings.jobs("postgresql://db"), child_environment={})


def test_a_child_is_told_what_it_needs_and_no_secret_of_ours() -> None:
    told = of(
        DATA_DIR="/srv/snaps",
        INTERNAL_TOKEN="i" * 16,
        SIGNING_SECRET="s" * 32,
        DATABASE_URL="postgresql://u:secret@h/d",
        FETCH_ALLOWED_HOSTS="camera.lan:8080",
    ).jobs("postgresql://u:secret@h/d")
    assert dict(told.child_environment) == {
        "SNAPAPP_DATA_DIR": "/srv/snaps",
        "SNAPAPP_ENV_FILE": "/dev/null",
        "SNAPAPP_FETCH_ALLOWED_HOSTS": "camera.lan:8080",
    }


@pytest.mark.parametrize("address", ["https://h/hook/", "https://h/hook/?key=a&token=b%2F", "http://h?key=a"])
def test_an_address_for_alerts_is_asked_for_as_it_was_typed(address: str) -> None:
    """Without its slash a receiver would say that it has moved, and without its query it would not know us."""
    settings = of(ALERT_WEBHOOK_URL=address, HEARTBEAT_URL=address)
    assert (settings.alert_webhook_url, settings.heartbeat_url) == (address, address)


def test_every_setting_of_the_queue_reaches_it() -> None:
    """W10-W14, Q10-Q14, R2, R17, S15."""
    settings = of(
        WORKER_ID="barn 7",
        WORKER_QUEUES="media, default",
        WORKER_CONCURRENCY="3",
        WORKER_ASYNC_CONCURRENCY="50",
        WORKER_CHILDREN="6",
        WORKER_COMMANDS="5",
        WORKER_MAX_STUCK="9",
        WORKER_BATCH_SIZE="7",
        WORKER_POLL_DELAY_MS="250",
        JOB_LOCK_TTL_MS="9001",
        JOB_HEARTBEAT_INTERVAL_MS="3000",
        JOB_RECOVERY_INTERVAL_MS="4000",
        JOB_MAX_ATTEMPTS="5",
        JOB_TIMEOUT_MS="6000",
        JOB_MEMORY_MB="64",
        MEMORY_FREE_MIN_MB="30",
        CHILD_MAX_JOBS="10",
        CHILD_MAX_RSS_MB="200",
        CHILD_NICE="0",
        COMMAND_ALLOW="ffmpeg, /usr/bin/file",
        RETRY_BASE_MS="1000",
        RETRY_MULTIPLIER="1.5",
        RETRY_MAX_MS="2000",
        RETRY_JITTER="0",
        JOB_RETENTION_HOURS="24",
        SHUTDOWN_GRACE_MS="0",
        PREPARED_STATEMENTS="off",
    )
    assert queues_part(settings) == JobsSettings(
        database_url="postgresql://db",
        queues=("media", "default"),
        concurrency=3,
        async_concurrency=50,
        children=6,
        child_max_jobs=10,
        child_max_rss_mb=200,
        child_nice=0,
        job_memory_mb=64,
        memory_free_min_mb=30,
        commands=5,
        command_allow=("ffmpeg", "/usr/bin/file"),
        max_stuck=9,
        batch_size=7,
        poll_delay=timedelta(milliseconds=250),
        lease_for=timedelta(milliseconds=9001),
        beat_every=timedelta(seconds=3),
        recover_every=timedelta(seconds=4),
        keep_finished=timedelta(days=1),
        shutdown_grace=timedelta(0),
        timeout=timedelta(seconds=6),
        max_attempts=5,
        retry=RetrySettings(base=timedelta(seconds=1), multiplier=1.5, maximum=timedelta(seconds=2), jitter=0.0),
        worker_name="barn 7",
        prepared_statements=False,
    )


@pytest.mark.parametrize("empty", ["", " ", "\t\n"])
def test_an_empty_value_counts_as_not_set(empty: str) -> None:
    assert load({entry.name: empty for entry in TABLE.values()}) == Settings()


def test_blanks_around_a_value_do_not_matter() -> None:
    assert of(PORT=" 9000\n", HOST="\t::1 ", WORKER_ENABLED=" no ").port == 9000


@pytest.mark.parametrize("text", ["true", "1", "yes", "on", "TRUE", "Yes"])
def test_ways_to_say_yes(text: str) -> None:
    assert of(WORKER_ENABLED=text).worker_enabled is True


@pytest.mark.parametrize("text", ["false", "0", "no", "off", "FALSE", "Off"])
def test_ways_to_say_no(text: str) -> None:
    assert of(WORKER_ENABLED=text).worker_enabled is False


def test_lists_are_trimmed_and_keep_their_order() -> None:
    assert of(WORKER_QUEUES=" media ,default,, media,").worker_queues == ("media", "default")
    assert of(PROCESSORS="farm.mail, farm.sms").processors == ("farm.mail", "farm.sms")


def test_choices_do_not_mind_case() -> None:
    settings = of(LOG_FORMAT="JSON", LOG_LEVEL="debug")
    assert (settings.log_format, settings.log_level) == (LogFormat.JSON, LogLevel.DEBUG)


def test_logs_are_json_in_prod_unless_said_otherwise() -> None:
    assert of().log_format is LogFormat.CONSOLE
    assert of(**PROD).log_format is LogFormat.JSON
    assert of(**PROD, LOG_FORMAT="console").log_format is LogFormat.CONSOLE


def test_a_relative_data_dir_is_made_absolute(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert load({}).data_dir == tmp_path / "var"
    assert of(DATA_DIR="my data").data_dir == tmp_path / "my data"


@pytest.mark.parametrize("scheme", ["postgresql", "postgres", "postgresql+psycopg", "PostgreSQL"])
def test_every_spelling_of_a_database_url_becomes_one(scheme: str) -> None:
    assert of(DATABASE_URL=f"{scheme}://u:p@h:5433/d").database_url == "postgresql://u:p@h:5433/d"


@pytest.mark.parametrize(
    "rest",
    ["", "h", "/d?host=/run/postgresql", "u@h:1,h2:2/d", "u@[::1]:5432/d", "u:%40%3A%2F@h/d", "%2Frun/d"],
)
def test_whatever_libpq_takes_is_a_database_url(rest: str) -> None:
    assert of(DATABASE_URL=f"postgresql://{rest}").database_url == f"postgresql://{rest}"


# --- Mistakes -----------------------------------------------------------------------------------------------

WRONG = {
    "ENV": ["production", "de v", "0"],
    "ENV_FILE": ["~/snapapp.env"],
    "DATABASE_URL": [
        "mysql://h/d",
        "postgresql+asyncpg://h/d",
        "sqlite:///x",
        "://h",
        "h:5432/d",
        "host=h dbname=d",
        "postgresql://h:x/d",
        "postgresql://h:0/d",
        "postgresql://h:65536/d",
        "postgresql://h:५/d",
        "postgresql://u:p@ss@h/d",
        "postgresql://u:p/ss@h/d",
        "postgresql://u:100%@h/d",
        "postgresql://h/d%00",
        "postgresql://h/a b",
    ],
    "DATA_DIR": ["~/var", "~", "a\x00b", "a\nb"],
    "HOST": ["http://localhost", "localhost:8000", "a b", "h/x", ":::", "-h", "h" * 254],
    "PORT": [
        "x",
        "80.0",
        "8e3",
        "0x50",
        "1_000",
        "8 0",
        "-1",
        "65536",
        "٣",
        "８０",
        "²",
        "9" * 5000,
        "+",
        "NaN",
    ],
    "STORAGE": ["disk", "s3://bucket"],
    "S3_ENDPOINT": [
        "s3.example.com",
        "ftp://h",
        "http://",
        "http://u:p@h",
        "https://h?x=1",
        "https://h:x",
        "https://[::1",
    ],
    "S3_BUCKET": ["a", "a/b", "-abc", "b" * 64],
    "S3_REGION": ["r" * 61],
    "S3_PREFIX": ["a b", "../up", "a//b", ".hidden", "é", "p" * 151],
    "S3_ACCESS_KEY_ID": ["x"],
    "S3_SECRET_ACCESS_KEY": ["short", "with a blank in it"],
    "MEDIA_RETENTION_DAYS": ["0", "-1", "36501", "1.5"],
    "UPLOAD_MAX_MB": ["0", "1048577", "1GB"],
    "TENANT_STORAGE_MAX_MB": ["0", "1000000001", "1GB", "-1"],
    "SIGNING_SECRET": [",", "x" * 31, f"{'x' * 32},short", "x" * 201, "a secret with blanks, which is long enough"],
    "MEDIA_URL_TTL_S": ["1", "59", "-1", "31536001", "1d"],
    "PUBLIC_BASE_URL": ["snaps.example.com", "https://", "https://u@h", "https://h/#x", "javascript://h/%0aalert(1)"],
    "CORS_ALLOWED_ORIGINS": [
        "app.example.com",
        "https://app.example.com/",
        "https://a.com,*.b.com",
        "https://A.com",
        "null",
    ],
    "REQUIRE_API_TOKEN": ["2", "maybe"],
    "INTERNAL_ALLOW": [",", "10.0.0.0/33", "localhost", "10.0.0", "::/129"],
    "ALERT_WEBHOOK_URL": [
        "hooks.example.com",
        "https://u:p@h",
        "ftp://h",
        "https://h/é",
        "https://h/?a#b",
        "https://h/\x7f",
    ],
    "ALERT_EMAIL": [",", "ana", "ana@", "@h", "a@b@c", "Ana <ana@h>", "ana@h\r\nBcc: b@h", "é@h", f"{'x' * 254}@h"],
    "ALERT_SMTP_URL": ["localhost", "http://h", "smtp://", "smtp://h:x", "smtp://h:0", "smtp://h/x", "smtp://[::1"],
    "ALERT_INTERVAL_MS": ["0", "99", "1m"],
    "HEARTBEAT_URL": ["hc.example.com/1", "https://", "javascript:alert(1)"],
    "WORKER_ENABLED": ["2", "ja", "tru", "y", "none", "-1"],
    "WORKER_ID": ["x" * 101, "a\tb", "a\x1bb", "\udcff"],
    "WORKER_QUEUES": [",", " , ,", "a b", "ok,not ok", "q" * 201, "a\x00"],
    "WORKER_CONCURRENCY": ["0", "-4", "1001", "4.5"],
    "WORKER_CHILDREN": ["0", "-1", "257"],
    "WORKER_BATCH_SIZE": ["0", "10001"],
    "WORKER_POLL_DELAY_MS": ["9", "-1000", "1s", "1000ms", "86400001", "9" * 30],
    "JOB_LOCK_TTL_MS": ["0", "-60000", "1e5", "inf"],
    "JOB_HEARTBEAT_INTERVAL_MS": ["0", "-1"],
    "JOB_RECOVERY_INTERVAL_MS": ["0", "-1"],
    "JOB_MAX_ATTEMPTS": ["0", "1001", "-3", "three"],
    "JOB_TIMEOUT_MS": ["0", "604800001"],
    "JOB_RETENTION_HOURS": ["-1", "87601", "7d"],
    "RETRY_BASE_MS": ["0", "-1"],
    "RETRY_MULTIPLIER": ["0.5", "101", "nan", "inf", "-inf", "1e999", "2,0", "1_0", "٢", "-2", ".", "0x2"],
    "RETRY_MAX_MS": ["0", "-1"],
    "RETRY_JITTER": ["-0.1", "1.1", "NaN", "20%", "1e-9999"],
    "SHUTDOWN_GRACE_MS": ["-1", "20s"],
    "PROCESSORS": [",,", "my-module", "a..b", ".a", "a.", "a b", "class", "a.import", "1a", "a/b", "a:b", "a;b"],
    "FETCH_MAX_MB": ["0", "1000001", "1 GB"],
    "FETCH_TIMEOUT_MS": ["99", "86400001", "2m"],
    "FETCH_ALLOWED_HOSTS": [
        "http://nas",
        "nas:0",
        "nas:65536",
        "nas:",
        "nas/videos",
        "::1",
        "[x]",
        "[1.2.3.4.5]",
        "me@nas",
        "10.0.0.0/8",
        "*",
        "*.example",
        "127.1",
        "a..b",
        "-a",
        "bücher.example",
    ],
    "SOURCE_CACHE_MB": ["-1", "10000001"],
    "LOG_FORMAT": ["text", "json,console"],
    "LOG_LEVEL": ["loud", "10"],
    "PREPARED_STATEMENTS": ["maybe"],
}


@pytest.mark.parametrize(("name", "text"), [(name, text) for name, texts in WRONG.items() for text in texts])
def test_a_wrong_value_is_one_mistake_that_names_the_variable_and_what_is_accepted(name: str, text: str) -> None:
    entry = next(entry for entry in TABLE.values() if entry.name == f"SNAPAPP_{name}")
    [mistake] = mistakes(**{name: text})
    assert mistake.startswith(entry.name)
    assert entry.reader.accepts in mistake
    assert len(mistake) < 300
    assert mistake.isprintable()


def test_a_mistake_shows_what_was_given() -> None:
    assert mistakes(PORT="80000") == ["SNAPAPP_PORT='80000' is not a whole number from 0 to 65535"]
    assert "it holds characters that cannot be printed" in mistakes(WORKER_ID="a\x00b")[0]
    assert "'not a module'" in mistakes(PROCESSORS="fine.module, not a module")[0]
    assert mistakes(WORKER_QUEUES=",,") == [
        "SNAPAPP_WORKER_QUEUES=',,' is not a list of queue names separated by commas: it names nothing"
    ]
    assert "its scheme is mysql" in mistakes(DATABASE_URL="mysql://h/d")[0]


def test_every_mistake_is_named_at_once() -> None:
    everything = {name: texts[0] for name, texts in WRONG.items()}
    assert [mistake.split("=")[0].split()[0] for mistake in mistakes(**everything)] == [
        entry.name for entry in TABLE.values() if entry.name.removeprefix("SNAPAPP_") in everything
    ]


@pytest.mark.parametrize(
    "text",
    ["mysql://u:hunter2@h/d", "postgresql://u:hun@ter2@h/d", "u:hunter2@h", "postgresql://u:hunter2@h:x/d"],
)
def test_a_mistake_never_shows_a_password(text: str) -> None:
    [mistake] = mistakes(DATABASE_URL=text)
    assert "ter2" not in mistake


def test_the_lease_must_outlast_three_beats() -> None:
    """S12."""
    [mistake] = mistakes(JOB_LOCK_TTL_MS="30000")
    assert "SNAPAPP_JOB_LOCK_TTL_MS='30000', SNAPAPP_JOB_HEARTBEAT_INTERVAL_MS=10000 (default)" in mistake
    assert "30 s is not more than 3 x 10 s" in mistake
    assert of(JOB_LOCK_TTL_MS="30001").job_lock_ttl == timedelta(milliseconds=30_001)


def test_the_longest_retry_delay_is_not_below_the_first() -> None:
    [mistake] = mistakes(RETRY_MAX_MS="9999")
    assert mistake.startswith("SNAPAPP_RETRY_MAX_MS='9999', SNAPAPP_RETRY_BASE_MS=10000 (default)")
    assert of(RETRY_MAX_MS="10000").retry_max == timedelta(seconds=10)


def test_all_clashes_are_named_at_once_beside_other_mistakes() -> None:
    found = mistakes(JOB_LOCK_TTL_MS="1", RETRY_MAX_MS="1", PORT="x")
    assert len(found) == 3


def test_a_value_that_is_wrong_by_itself_clashes_with_nothing() -> None:
    assert len(mistakes(JOB_LOCK_TTL_MS="a minute", JOB_HEARTBEAT_INTERVAL_MS="40000")) == 1
    assert len(mistakes(RETRY_BASE_MS="x", RETRY_MAX_MS="1")) == 1


def test_a_refusal_of_the_queue_that_we_do_not_know_is_shown_all_the_same(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(loading, "_TOGETHER", {})
    assert mistakes(JOB_LOCK_TTL_MS="1")[0].startswith("the queue: the lease must outlast three beats")


def test_prod_refuses_what_is_for_development_and_names_it_all() -> None:
    found = mistakes(ENV="prod", ENV_FILE="etc/snapapp.env")
    assert [mistake.split()[0] for mistake in found] == [
        "SNAPAPP_DATABASE_URL",
        "SNAPAPP_INTERNAL_TOKEN",
        "SNAPAPP_SIGNING_SECRET",
        "SNAPAPP_ENV_FILE='etc/snapapp.env'",
        "SNAPAPP_DATA_DIR=./var",
    ]
    assert of(**PROD).env is Environment.PROD


def test_prod_takes_no_relative_folder_for_backups_but_every_bucket() -> None:
    """The service and a person at a terminal would each have a folder of their own."""
    [mistake] = mistakes(**PROD, BACKUP_TO="backups")
    assert mistake == "SNAPAPP_BACKUP_TO='backups' must be an absolute path in prod"
    for fine in ("/srv/backups", "s3://bucket/backups"):
        assert of(**PROD, BACKUP_TO=fine).backup_to == fine


def test_a_token_to_read_with_needs_another_one_to_change_with() -> None:
    [alone] = mistakes(INTERNAL_READ_TOKEN="r" * 16)
    assert alone.startswith("SNAPAPP_INTERNAL_TOKEN is required with SNAPAPP_INTERNAL_READ_TOKEN")
    [same] = mistakes(INTERNAL_TOKEN="r" * 16, INTERNAL_READ_TOKEN="r" * 16)
    assert same.startswith("SNAPAPP_INTERNAL_READ_TOKEN must differ")
    assert of(INTERNAL_TOKEN="i" * 16, INTERNAL_READ_TOKEN="r" * 16).internal_read_token == "r" * 16


def test_prod_shows_no_demo() -> None:
    assert of().demo
    assert not of(**PROD).demo
    [mistake] = mistakes(**PROD, DEMO="true")
    assert mistake.startswith("SNAPAPP_DEMO='true' is for development")


def test_prod_does_not_ask_for_a_database_url_that_is_there_but_wrong() -> None:
    assert len(mistakes(**PROD | {"DATABASE_URL": "mysql://h/d"})) == 1


def test_s3_needs_a_bucket_and_keys_and_names_what_lacks() -> None:
    assert mistakes(STORAGE="s3", S3_ACCESS_KEY_ID="someone") == [
        "SNAPAPP_S3_BUCKET is required with SNAPAPP_STORAGE=s3",
        "SNAPAPP_S3_SECRET_ACCESS_KEY is required with SNAPAPP_STORAGE=s3",
    ]
    assert len(mistakes(STORAGE="s3", S3_BUCKET="/", S3_ACCESS_KEY_ID="someone", S3_SECRET_ACCESS_KEY="s" * 20)) == 1


def test_prod_sends_nothing_to_s3_in_the_clear() -> None:
    [mistake] = mistakes(**PROD, S3_ENDPOINT="http://s3.example.com")
    assert mistake.startswith("SNAPAPP_S3_ENDPOINT='http://s3.example.com' must be https://")
    for fine in ("https://s3.example.com/", "http://localhost:9000"):
        assert of(**PROD, S3_ENDPOINT=fine).s3_endpoint == fine.rstrip("/")


def test_secrets_are_several_and_shown_nowhere() -> None:
    settings = of(SIGNING_SECRET=f"{'new' * 12}, {'old' * 12}", S3_SECRET_ACCESS_KEY="hunter2hunter2")
    assert settings.signing_secret == ("new" * 12, "old" * 12)
    shown = repr(settings) + repr(explain(settings))
    assert not any(secret in shown for secret in ("newnew", "oldold", "hunter2"))
    assert "hunter2" not in str(mistakes(S3_SECRET_ACCESS_KEY="hunter2 hunter2"))


TROUBLE = string.printable + "\x00\x1b\u00a0\u2028\udcff٣²…é"


@given(
    st.dictionaries(
        st.sampled_from([entry.name for entry in TABLE.values()]),
        st.one_of(st.text(TROUBLE, max_size=30), st.integers().map(str), st.floats().map(str)),
    )
)
def test_whatever_the_environment_holds_it_is_settings_or_a_list_of_mistakes(environ: dict[str, str]) -> None:
    try:
        said = [row.value for row in explain(load(environ))]
        load(environ).jobs("postgresql://db")
    except SettingsError as error:
        said = error.mistakes
    assert said
    assert all(line.isprintable() for line in said)


# --- Warnings -----------------------------------------------------------------------------------------------


def test_an_unknown_variable_is_a_warning_with_the_closest_name() -> None:
    assert of(PROT="1", WORKER_CONCURENCY="2", SOMETHING_ELSE="3").warnings == (
        "SNAPAPP_PROT is not a setting; did you mean SNAPAPP_PORT?",
        "SNAPAPP_SOMETHING_ELSE is not a setting",
        "SNAPAPP_WORKER_CONCURENCY is not a setting; did you mean SNAPAPP_WORKER_CONCURRENCY?",
    )


def test_a_name_in_small_letters_is_a_warning() -> None:
    assert load({"snapapp_port": "1"}).warnings == ("snapapp_port is not a setting; did you mean SNAPAPP_PORT?",)


def test_variables_of_others_are_none_of_our_business() -> None:
    assert load({"PATH": "/bin", "PORT": "x", "SNAPAPPS": "y"}, env_file("PGSSLMODE=require")).warnings == ()


def test_the_defaults_of_the_queue_are_those_that_were_decided() -> None:
    """W10, W11, W12, W49, Q10, Q11, Q13, Q14, R7, S15."""
    its = of().jobs("postgresql://")
    assert (its.concurrency, its.batch_size, its.max_attempts) == (4, 100, 3)
    assert (its.lease_for, its.beat_every) == (timedelta(seconds=60), timedelta(seconds=10))
    assert its.recover_every == timedelta(seconds=15)
    assert (its.keep_finished, its.retry.base, its.retry.maximum) == (
        timedelta(days=7),
        timedelta(seconds=10),
        timedelta(minutes=5),
    )


# --- Explaining ---------------------------------------------------------------------------------------------


def test_explain_says_where_each_value_comes_from() -> None:
    """R5: defaults are beneath the file, which is beneath the environment."""
    settings = of(env_file("SNAPAPP_PORT=9000", "SNAPAPP_HOST=::1"), PORT="9001")
    rows = {row.name: (row.value, row.source) for row in explain(settings)}
    assert rows["SNAPAPP_PORT"] == ("9001", Origin.ENVIRONMENT)
    assert rows["SNAPAPP_HOST"] == ("::1", Origin.FILE)
    assert rows["SNAPAPP_WORKER_POLL_DELAY_MS"] == ("auto", Origin.DEFAULT)
    assert rows["SNAPAPP_WORKER_ENABLED"] == ("true", Origin.DEFAULT)
    assert rows["SNAPAPP_DATABASE_URL"] == ("", Origin.DEFAULT)


def test_explain_says_json_is_the_default_in_prod() -> None:
    rows = {row.name: (row.value, row.source) for row in explain(of(**PROD))}
    assert rows["SNAPAPP_LOG_FORMAT"] == ("json", Origin.DEFAULT)


@pytest.mark.parametrize(
    ("url", "masked"),
    [
        ("postgres://u:hunter2@h/d", "postgresql://u:***@h/d"),
        ("postgresql://u@h/d?password=hunter2&a=b", "postgresql://u@h/d?password=***&a=b"),
        ("postgresql:///d?sslpassword=hunter2", "postgresql:///d?sslpassword=***"),
        ("postgresql://h:5432/d", "postgresql://h:5432/d"),
    ],
)
def test_passwords_are_shown_nowhere(url: str, masked: str) -> None:
    settings = of(DATABASE_URL=url)
    assert masked in [row.value for row in explain(settings)]
    assert "hunter2" not in repr(settings)


# --- The environment file -----------------------------------------------------------------------------------


def test_the_environment_wins_over_the_file_and_an_empty_variable_does_not() -> None:
    file = env_file("SNAPAPP_PORT=9000", "SNAPAPP_HOST=::1")
    settings = of(file, PORT="", HOST="localhost")
    assert (settings.port, settings.host) == (9000, "localhost")


@pytest.mark.parametrize(
    ("line", "value"),
    [
        ("SNAPAPP_WORKER_ID=plain", "plain"),
        ("  SNAPAPP_WORKER_ID = no blanks around the name", None),
        ("SNAPAPP_WORKER_ID=  blanks around it \t", "blanks around it"),
        ("SNAPAPP_WORKER_ID='single \"\\ quotes'", 'single "\\ quotes'),
        ('SNAPAPP_WORKER_ID="double \'\\"\\\\\\$ quotes"', "double '\"\\$ quotes"),
        ("SNAPAPP_WORKER_ID=a=b#c", "a=b#c"),
        ("SNAPAPP_WORKER_ID=first\nSNAPAPP_WORKER_ID=last", "last"),
        ("SNAPAPP_WORKER_ID=crlf\r\n", "crlf"),
        ("# SNAPAPP_WORKER_ID=x\n; SNAPAPP_WORKER_ID=y\n\nSNAPAPP_WORKER_ID=z", "z"),
        ("export SNAPAPP_WORKER_ID=x", None),
        ("SNAPAPP_WORKER_ID", None),
        ("=x", None),
        ("9A=x", None),
        ("SNAPAPP_WORKER_ID='open", None),
        ("SNAPAPP_WORKER_ID='", None),
        ('SNAPAPP_WORKER_ID="open\\"', None),
        ("SNAPAPP_WORKER_ID='a' b", None),
        ("SNAPAPP_WORKER_ID='a'b'", None),
        ("SNAPAPP_WORKER_ID=C:\\x", None),
        ("\ufeffSNAPAPP_WORKER_ID=byte order mark", None),
    ],
)
def test_lines_are_read_as_systemd_reads_them_or_refused(line: str, value: str | None) -> None:
    file = EnvFile.parse(line.encode(), "snapapp.env")
    if value is None:
        assert mistakes(file)[0].startswith("snapapp.env line 1: ")
    else:
        assert of(file).worker_id == value


def test_mistakes_of_the_file_and_of_the_environment_are_named_together() -> None:
    file = env_file("# ours", "SNAPAPP_PORT=http", "what is this")
    assert mistakes(file, WORKER_CHILDREN="many") == [
        "snapapp.env line 3: it is not KEY=VALUE",
        "SNAPAPP_PORT='http' (snapapp.env line 2) is not a whole number from 0 to 65535",
        "SNAPAPP_WORKER_CHILDREN='many' is not a whole number from 1 to 256",
    ]


def test_a_broken_line_does_not_show_its_value() -> None:
    assert not any("hunter2" in mistake for mistake in mistakes(env_file("SNAPAPP_DATABASE_URL='hunter2")))


def test_a_typo_in_the_file_is_a_warning() -> None:
    assert of(env_file("SNAPAPP_PROT=1")).warnings == ("SNAPAPP_PROT is not a setting; did you mean SNAPAPP_PORT?",)


def test_a_file_cannot_name_another() -> None:
    settings = of(env_file("SNAPAPP_ENV_FILE=/elsewhere"))
    assert settings.env_file == DEFAULT_ENV_FILE
    assert settings.warnings == ("snapapp.env line 1: SNAPAPP_ENV_FILE has no effect in a file",)


def test_a_file_that_is_not_text_is_a_mistake() -> None:
    assert "is not UTF-8" in EnvFile.parse(b"A=\xff", "snapapp.env").mistakes[0]
    assert "is larger than" in EnvFile.parse(b"#" * 2_000_000, "snapapp.env").mistakes[0]
    assert "cannot be printed" in mistakes(EnvFile.parse(b"SNAPAPP_HOST=a\x00b", "snapapp.env"))[0]


def test_the_named_file_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "the settings.env"
    path.write_text("SNAPAPP_PORT=9000\n")
    monkeypatch.setenv("SNAPAPP_ENV_FILE", str(path))
    settings = from_environment()
    assert settings.port == 9000
    assert settings.looked_in == ("the environment", str(path))


@pytest.mark.parametrize("name", ["missing.env", ".", "a\x00b"])
def test_a_named_file_that_cannot_be_read_is_a_mistake(tmp_path: Path, name: str) -> None:
    [mistake] = mistakes(EnvFile.at(tmp_path / name, is_named=True))
    assert mistake.startswith("SNAPAPP_ENV_FILE names a file that cannot be read")


def test_the_default_file_may_be_missing(tmp_path: Path) -> None:
    settings = of(EnvFile.at(tmp_path / "snapapp.env", is_named=False))
    assert settings.warnings == ()
    assert settings.looked_in[1] == f"{tmp_path}/snapapp.env (No such file or directory)"


def test_a_default_file_that_may_not_be_read_is_a_warning(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "open", refuse)  # root may read everything
    settings = of(EnvFile.at(tmp_path / "snapapp.env", is_named=False))
    assert settings.warnings == (f"{tmp_path}/snapapp.env (Permission denied): its settings are not applied",)
