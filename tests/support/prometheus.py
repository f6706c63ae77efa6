"""What Prometheus would do with the pages of metrics: which alerts of the product's rules fire.

promtool judges, with the samples of two scrapes as its series. It says of an alert that was not expected what it got.
"""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Iterable
from pathlib import Path

import yaml
from prometheus_client.parser import text_string_to_metric_families

from tests.house.tree import ROOT

RULES = ROOT / "deploy" / "monitoring" / "rules.yml"
INSTALLED = shutil.which("promtool") is not None
WHY = "promtool (package prometheus) is not installed here"
_COUNTERS = ("_total", "_bucket", "_count", "_sum")
_LOOKS = ("4m", "9m", "40m")
"""Times after the second scrape: soon, for alerts about what has just happened, and late, for those that wait."""


def alerts() -> dict[str, str]:
    """The alerts of the rules, with their expressions."""
    (group,) = yaml.safe_load(RULES.read_text())["groups"]
    return {rule["alert"]: rule["expr"] for rule in group["rules"]}


def firing(before: str, after: str, folder: Path, *, job: str = "eruca-broker") -> set[str]:
    """The alerts that fire when a daemon's page was ``before`` and is ``after`` from then on.

    Counters go on as they did between the two. An empty page: the daemon did not answer.
    """
    series = [
        {"series": name, "values": f"{old:.17g} {new:.17g}{new - old if counts else 0:+.17g}x200"}
        for name, old, new, counts in _series(before, after)
    ]
    up = {"series": f'up{{job="{job}",instance="here"}}', "values": f"{int(bool(before))} {int(bool(after))}x200"}
    tests = [
        {
            "interval": "1m",
            "input_series": [up, *series],
            "alert_rule_test": [{"eval_time": time, "alertname": name, "exp_alerts": []} for name in alerts()],
        }
        for time in _LOOKS
    ]
    file = folder / "alerts.yml"
    file.write_text(yaml.safe_dump({"rule_files": [str(RULES)], "evaluation_interval": "1m", "tests": tests}))
    done = subprocess.run(["promtool", "test", "rules", str(file)], capture_output=True, text=True, timeout=120)
    said = done.stdout + done.stderr
    assert done.returncode == 0 or "FAILED" in said, said
    return {name for name in re.findall(r'alertname="?(\w+)', said) if name in alerts()}


def _series(before: str, after: str) -> Iterable[tuple[str, float, float, bool]]:
    """Name, both values, and whether it is a counter."""
    old = dict(_samples(before))
    for name, value in _samples(after):
        yield name, old.get(name, 0.0), value, name.partition("{")[0].endswith(_COUNTERS)


def _samples(page: str) -> Iterable[tuple[str, float]]:
    for family in text_string_to_metric_families(page):
        for sample in family.samples:
            given = sorted({**sample.labels, "instance": "here"}.items())
            labels = ",".join(f'{name}="{value}"' for name, value in given)
            yield f"{sample.name}{{{labels}}}", sample.value
