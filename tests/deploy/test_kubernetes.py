"""The manifests for Kubernetes: what kustomize makes of them, judged by the rules of a restricted namespace."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from eruca.broker.config import BrokerConfig, BrokerRole, complete
from eruca.remoting.command_line import command_line
from tests.house.tree import ROOT

FOLDER = ROOT / "deploy" / "kubernetes"
HA_PORT = 10912
VOLUMES = {"configMap", "csi", "downwardAPI", "emptyDir", "ephemeral", "persistentVolumeClaim", "projected", "secret"}
"""The kinds of volumes that the standard "restricted" allows."""


def parts() -> list[dict[str, Any]]:
    """All parts: those of the folder, put together by kustomize where it is installed."""
    kubectl = shutil.which("kubectl")
    if kubectl is None:
        names = yaml.safe_load((FOLDER / "kustomization.yaml").read_text())["resources"]
        return [part for name in names for part in yaml.safe_load_all((FOLDER / name).read_text())]
    made = subprocess.run([kubectl, "kustomize", str(FOLDER)], capture_output=True, text=True, check=True)
    return list(yaml.safe_load_all(made.stdout))


PARTS = parts()


def of_kind(kind: str) -> list[dict[str, Any]]:
    return [part for part in PARTS if part["kind"] == kind]


def pods() -> list[Any]:
    return [
        pytest.param(part["spec"]["template"]["spec"], id=part["metadata"]["name"]) for part in of_kind("StatefulSet")
    ]


def forbidden(pod: dict[str, Any]) -> list[str]:
    """What the pod security standard "restricted" has against a pod."""
    found = [f"{key} is true" for key in ("hostNetwork", "hostPID", "hostIPC") if pod.get(key)]
    volumes = {kind for volume in pod.get("volumes", []) for kind in volume if kind != "name"}
    found += [f"a volume of the kind {kind}" for kind in sorted(volumes - VOLUMES)]
    for container in [*pod["containers"], *pod.get("initContainers", [])]:
        whole = pod.get("securityContext", {}) | container.get("securityContext", {})
        name = container["name"]
        if whole.get("runAsNonRoot") is not True or whole.get("runAsUser") == 0:
            found.append(f"{name} may be root")
        if whole.get("seccompProfile", {}).get("type") not in ("RuntimeDefault", "Localhost"):
            found.append(f"{name} has no seccomp profile")
        if whole.get("allowPrivilegeEscalation") is not False or whole.get("privileged"):
            found.append(f"{name} may gain privileges")
        capabilities = whole.get("capabilities", {})
        if capabilities.get("drop") != ["ALL"] or set(capabilities.get("add", [])) - {"NET_BIND_SERVICE"}:
            found.append(f"{name} has capabilities")
        if any("hostPort" in port for port in container.get("ports", [])):
            found.append(f"{name} takes a port of the machine")
    return found


@pytest.mark.parametrize("pod", pods())
def test_a_restricted_namespace_takes_each_pod(pod: dict[str, Any]) -> None:
    assert forbidden(pod) == []


def test_the_judge_of_pods_has_something_against_a_plain_one() -> None:
    plain = {"hostNetwork": True, "volumes": [{"name": "x", "hostPath": {}}], "containers": [{"name": "c"}]}
    assert len(forbidden(plain)) == 6


@pytest.mark.parametrize("pod", pods())
def test_a_pod_writes_its_volumes_only_and_has_every_probe(pod: dict[str, Any]) -> None:
    (container,) = pod["containers"]
    assert container["securityContext"]["readOnlyRootFilesystem"] is True
    assert container["readinessProbe"]["httpGet"]["path"] == "/readyz"
    assert container["livenessProbe"]["httpGet"]["path"] == "/healthz"
    assert container["resources"]["limits"]["memory"]
    ports = {port["name"] for port in container["ports"]}
    assert {container[probe]["httpGet"]["port"] for probe in ("readinessProbe", "livenessProbe")} <= ports


def test_only_brokers_reach_the_ha_port() -> None:
    (policy,) = [part for part in of_kind("NetworkPolicy") if part["metadata"]["name"] == "broker"]
    open_to = [rule["from"] for rule in policy["spec"]["ingress"] if any(p["port"] == HA_PORT for p in rule["ports"])]
    assert open_to == [[{"podSelector": {"matchLabels": {"app.kubernetes.io/name": "eruca-broker"}}}]]
    assert all(rule.get("from") and rule.get("ports") for rule in policy["spec"]["ingress"])


def started_as(host: str, folder: Path) -> BrokerConfig:
    """The configuration with which a pod of that name starts its broker: its own script, with another mqbroker."""
    (broker,) = [part for part in of_kind("StatefulSet") if part["metadata"]["name"] == "broker-a"]
    (container,) = broker["spec"]["template"]["spec"]["containers"]
    seen = folder / "environment"
    (folder / "mqbroker").write_text(f"#!/bin/sh\nenv >{seen}\n")
    (folder / "mqbroker").chmod(0o755)
    given = {each["name"]: each.get("value", "10.1.2.3") for each in container["env"]}
    environment = {"PATH": f"{folder}:{os.environ['PATH']}", "HOSTNAME": host, "HOME": "/var/lib/eruca", **given}
    subprocess.run([*container["command"], *container["args"]], env=environment, check=True)
    variables = dict(re.findall(r"(?m)^(\w+)=(.*)$", seen.read_text()))
    start = command_line(BrokerConfig, "mqbroker", [], variables)
    assert start.warnings == []
    return complete(start.config)


def test_the_number_of_a_pod_makes_it_master_or_slave(tmp_path: Path) -> None:
    master, slave = started_as("broker-a-0", tmp_path), started_as("broker-a-1", tmp_path)

    assert (master.broker_name, master.broker_id, master.store.broker_role) == ("broker-a", 0, BrokerRole.ASYNC_MASTER)
    assert (slave.broker_name, slave.broker_id, slave.store.broker_role) == ("broker-a", 1, BrokerRole.SLAVE)
    assert master.broker_ip1 == "10.1.2.3"
    assert master.nameservers == ["namesrv-0.namesrv:9876", "namesrv-1.namesrv:9876"]


def test_the_address_of_the_master_is_that_of_proxies_which_ask_the_brokers() -> None:
    example = list(yaml.safe_load_all((FOLDER / "examples" / "master.yaml").read_text()))
    config, service, proxies, policy = example
    pod = proxies["spec"]["template"]
    assert forbidden(pod["spec"]) == []
    assert service["spec"]["selector"].items() <= pod["metadata"]["labels"].items()
    assert pod["spec"]["volumes"][0]["configMap"]["name"] == config["metadata"]["name"]
    (broker,) = [part for part in of_kind("StatefulSet") if part["metadata"]["name"] == "broker-a"]
    assert policy["spec"]["podSelector"] == broker["spec"]["selector"]
    said = config["data"]["haproxy.cfg"]
    checks = re.findall(r"(?m)^    (?:option httpchk|http-check) .*$", (ROOT / "deploy/haproxy/group.cfg").read_text())
    assert len(checks) == 2 and set(checks) <= set(said.splitlines()), "the same question to the brokers"
    place = f"broker-a.{yaml.safe_load((FOLDER / 'kustomization.yaml').read_text())['namespace']}.svc.cluster.local"
    assert re.findall(r"server (\S+) (\S+):10911", said) == [
        (f"broker-a-{n}", f"broker-a-{n}.{place}") for n in range(3)
    ]


@pytest.mark.skipif(shutil.which("haproxy") is None, reason="needs haproxy")
def test_haproxy_takes_both_configurations(tmp_path: Path) -> None:
    (config, *_) = yaml.safe_load_all((FOLDER / "examples" / "master.yaml").read_text())
    for text in (config["data"]["haproxy.cfg"], (ROOT / "deploy/haproxy/group.cfg").read_text()):
        (tmp_path / "haproxy.cfg").write_text(text)
        subprocess.run(["haproxy", "-c", "-f", str(tmp_path / "haproxy.cfg")], check=True)


def test_the_account_of_the_page_may_make_the_pods_of_spark() -> None:
    space, account, role, binding = yaml.safe_load_all((FOLDER / "examples" / "spark.yaml").read_text())
    page = (ROOT / "docs" / "spark-deployment.md").read_text()

    name, namespace = account["metadata"]["name"], space["metadata"]["name"]
    assert f"spark.kubernetes.authenticate.driver.serviceAccountName={name}" in page
    assert f"spark.kubernetes.namespace={namespace}" in page
    assert {part["metadata"]["namespace"] for part in (account, role, binding)} == {namespace}
    assert binding["subjects"] == [{"kind": "ServiceAccount", "name": name, "namespace": namespace}]
    assert (binding["roleRef"]["kind"], binding["roleRef"]["name"]) == ("Role", role["metadata"]["name"])
    (makes, _) = role["rules"]
    assert {"pods", "services", "configmaps"} <= {*makes["resources"]}
    assert {"create", "get", "list", "watch", "delete"} <= {*makes["verbs"]}
