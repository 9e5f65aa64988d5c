"""Alerts as a field of a configuration."""

from __future__ import annotations

import dataclasses
import json

import draccus
import pytest
import yaml

from trackway.alerts import AlertRule, Alerts, AlertsConfig, alerts_config
from trackway.errors import AlertSyntaxError, ConfigError

RULE = "loss > 5 => error: loss is high"


@pytest.mark.parametrize(
    "value",
    [RULE, [RULE], (RULE,), {"rules": [RULE]}, AlertsConfig([RULE])],
)
def test_short_forms_mean_the_same(value):
    """A rule, a list of rules and a mapping of fields all make a configuration."""
    assert alerts_config(value) == AlertsConfig(rules=[RULE])


def test_rules_may_be_mappings_and_objects():
    """A rule is a text, a mapping or an `AlertRule`; a mapping with `when` alone is one, too."""
    config = alerts_config([RULE, {"when": "isnan(loss)", "recovery": True}, AlertRule("loss > 6")])
    assert [rule.when for rule in config.parsed_rules()] == ["loss > 5", "isnan(loss)", "loss > 6"]
    assert alerts_config({"when": "isnan(loss)"}).rules == [{"when": "isnan(loss)"}]
    assert alerts_config(AlertRule("loss > 6")).rules == [AlertRule("loss > 6")]
    assert alerts_config(None) == AlertsConfig()


def test_a_rule_without_quotes_is_what_it_looks_like():
    """YAML takes a rule with a message for a mapping; it is read as the text that it was written as."""
    config = alerts_config(yaml.safe_load(f"- {RULE}\n- isnan(loss) => error: 5\n- loss > 6 => info"))
    assert config.rules == [RULE, "isnan(loss) => error: 5", "loss > 6 => info"]
    assert config.parsed_rules()[0].message == "loss is high"


@pytest.mark.parametrize(
    ("value", "words"),
    [
        (7, "alerts must be a list of rules or a mapping of rules, channels"),
        ({"rule": []}, "alerts.rule: unknown field; .* did you mean rules"),
        ({"rules": RULE}, "alerts.rules must be a list, got str"),
        ({"channels": "log"}, "alerts.channels must be a list, got str"),
        ({"channels": ["lgo"]}, r"alerts.channels\[0\] must be .*, got 'lgo'; did you mean log"),
        ({"channels": ["log", {"name": "log"}]}, r"alerts.channels\[1\]: there is a channel 'log' already"),
        ({"rules": [{"when": RULE, "channels": ["chat"]}]}, r"rules\[0\].channels: there is no channel 'chat'"),
        ({"interval": 0}, "alerts.interval must be a number of seconds greater than 0, got 0"),
        ({"stop_timeout": -1}, "alerts.stop_timeout must be a number of seconds of at least 0, got -1"),
        ({"retry_delay": float("inf")}, "alerts.retry_delay"),
        ({"dedup_window": "60"}, "alerts.dedup_window"),
        ({"rate_limit": 0}, "alerts.rate_limit must be an integer of at least 1, got 0"),
        ({"queue_size": True}, "alerts.queue_size"),
        ({"retries": 1.5}, "alerts.retries must be an integer of at least 0"),
    ],
)
def test_what_is_wrong_is_named_with_its_place(value, words):
    """Each error says where it is, what was given and what is allowed."""
    with pytest.raises(ConfigError, match=words):
        alerts_config(value)


def test_a_rule_that_cannot_be_read_is_an_error_when_the_configuration_is_made():
    """The language's own error points at the place."""
    with pytest.raises(AlertSyntaxError):
        alerts_config(["loss >"])


def test_a_configuration_is_made_where_services_cannot_be_reached(monkeypatch):
    """Variables are looked up, and callables imported, when alerts start: not on the machine that submits a job."""
    monkeypatch.delenv("CHAT_URL", raising=False)
    config = AlertsConfig([RULE], ["log", {"apprise": "CHAT_URL"}, "no_such_module_here:page"])
    assert [spec.name for spec in config.channel_specs()] == ["log", "CHAT_URL", "no_such_module_here:page"]
    with pytest.raises(ConfigError, match="CHAT_URL is not set"):
        Alerts(config)


def test_draccus_reads_what_it_writes():
    """The configuration survives a round trip through a file."""

    @dataclasses.dataclass
    class Config:
        alerts: AlertsConfig

    given = {"alerts": {"rules": [RULE, {"when": "isnan(loss)"}], "channels": ["log", {"apprise": "CHAT_URL"}]}}
    config = draccus.decode(Config, given)
    assert config.alerts == AlertsConfig([RULE, {"when": "isnan(loss)"}], ["log", {"apprise": "CHAT_URL"}])
    assert draccus.decode(Config, draccus.encode(config)) == config


def test_callables_are_written_by_their_import_paths():
    """A file holds a callable as text, where it can be imported; one that cannot is left out."""
    config = AlertsConfig([RULE], ["log", json.dumps, {"call": json.dumps, "name": "page"}, lambda _: None])
    assert config.writable().channels == ["log", "json:dumps", {"call": "json:dumps", "name": "page"}]


def test_fields_may_be_given_to_alerts_themselves():
    """`Alerts` takes rules and the fields of the configuration."""
    alerts = Alerts([RULE], channels=["log"], queue_size=7)
    assert alerts.config == AlertsConfig([RULE], ["log"], queue_size=7)
