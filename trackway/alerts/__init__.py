"""Alerts on the rows of a run: rules, the engine that watches rows with them, and where alerts go."""

from __future__ import annotations

from trackway.alerts._alerts import Alerts
from trackway.alerts._channels import SendAlert
from trackway.alerts._config import AlertsConfig, alerts_config
from trackway.alerts._engine import RuleEngine
from trackway.alerts._replay import replay_rules
from trackway.alerts._rule import Alert, AlertRule, parse_rule

__all__ = [
    "Alert",
    "AlertRule",
    "Alerts",
    "AlertsConfig",
    "RuleEngine",
    "SendAlert",
    "alerts_config",
    "parse_rule",
    "replay_rules",
]
