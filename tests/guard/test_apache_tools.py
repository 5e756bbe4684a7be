"""Apache Kafka's own tools, which are its Java client, through SASL_SSL with a PEM trust store."""

import asyncio
import os
import subprocess
from pathlib import Path

import pytest

from horolog.bench.apache_kafka import tool, why_unavailable
from horolog.protocol.api.registry import APIS
from horolog.protocol.api.security.acl_terms import Operation, ResourceType
from horolog.protocol.errors import SaslAuthenticationFailed
from horolog.server.broker import Broker
from horolog.testing.access import log_in
from horolog.testing.issuer import Issuer, token_settings
from horolog.testing.wire import wire

from .conftest import PASSWORD, USERS, Authority, Guarded

_ACLS = "kafka.admin.AclCommand"
_CONFIGS = "kafka.admin.ConfigCommand"
_TOPICS = "org.apache.kafka.tools.TopicCommand"
_SECONDS = 100
_DESCRIBE_CLIENT_QUOTAS = 48


class Tools:
    def __init__(self, broker: Broker, authority: Authority, folder: Path, mechanism: str) -> None:
        self._address = str(broker.addresses.kafka)
        self._properties = folder / f"{mechanism}.properties"
        module = "plain.Plain" if mechanism == "PLAIN" else "scram.Scram"
        self._properties.write_text(
            f"security.protocol=SASL_SSL\nsasl.mechanism={mechanism}\n"
            f"ssl.truststore.type=PEM\nssl.truststore.location={authority.cert}\n"
            f"sasl.jaas.config=org.apache.kafka.common.security.{module}LoginModule required "
            f'username="alice" password="{PASSWORD}";\n'
        )

    async def run(self, name: str, *arguments: str) -> str:
        done = await self._done(name, *arguments)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    async def refused(self, name: str, *arguments: str) -> str:
        """What it says when it fails."""
        done = await self._done(name, *arguments)
        assert done.returncode != 0
        return done.stdout + done.stderr

    async def _done(self, name: str, *arguments: str) -> "subprocess.CompletedProcess[str]":
        server = ("--bootstrap-server", self._address, "--command-config", str(self._properties))
        command = tool(name, *server, *arguments)
        return await asyncio.to_thread(
            subprocess.run, command, capture_output=True, text=True, timeout=_SECONDS
        )


@pytest.fixture(autouse=True)
def kafka() -> None:
    """The tests are skipped where the tools cannot run."""
    reason = why_unavailable()
    if reason is not None and os.environ.get("HOROLOG_REQUIRE") == "all":
        pytest.fail(reason)
    if reason is not None:
        pytest.skip(reason)


@pytest.mark.parametrize(
    "mechanism", ["SCRAM-SHA-512", pytest.param("PLAIN", marks=pytest.mark.secure_clients)]
)
async def test_topics(
    guarded: Guarded, authority: Authority, tmp_path: Path, mechanism: str
) -> None:
    async with guarded() as broker:
        tools = Tools(broker, authority, tmp_path, mechanism)
        await tools.run(_TOPICS, "--create", "--topic", "clicks", "--partitions", "2")
        assert "clicks" in await tools.run(_TOPICS, "--list")
        assert set(broker.figures.logins) == {(mechanism, "done")}


async def test_a_token(guarded: Guarded, authority: Authority, tmp_path: Path) -> None:
    """The Java client reads the token from a file (KIP-768)."""
    issuer = Issuer()
    token = tmp_path / "token"
    token.write_text(issuer.token("carol"))
    async with guarded(**token_settings(issuer.write(tmp_path / "keys.json"))) as broker:
        tools = Tools(broker, authority, tmp_path, "OAUTHBEARER")
        package = "org.apache.kafka.common.security.oauthbearer"
        tools._properties.write_text(
            "security.protocol=SASL_SSL\nsasl.mechanism=OAUTHBEARER\n"
            f"ssl.truststore.type=PEM\nssl.truststore.location={authority.cert}\n"
            f"sasl.jaas.config={package}.OAuthBearerLoginModule required;\n"
            f"sasl.login.callback.handler.class={package}.secured."
            "OAuthBearerLoginCallbackHandler\n"
            f"sasl.oauthbearer.token.endpoint.url={token.as_uri()}\n"
        )
        await tools.run(_TOPICS, "--create", "--topic", "clicks", "--partitions", "2")
        assert "clicks" in broker.directory.topics()
        assert set(broker.figures.logins) == {("OAUTHBEARER", "done")}


async def test_users(guarded: Guarded, authority: Authority, tmp_path: Path) -> None:
    """kafka-configs.sh adds a user, shows it and takes it away; it alters a topic."""
    user = ("--entity-type", "users", "--entity-name", "dave")
    async with guarded() as broker:
        tools = Tools(broker, authority, tmp_path, "SCRAM-SHA-512")
        password = "SCRAM-SHA-512=[iterations=8192,password=secret-of-dave]"
        added = await tools.run(_CONFIGS, "--alter", *user, "--add-config", password)
        assert "Completed updating config for user dave" in added
        async with wire(broker.addresses.native, tls=authority.trusting()) as client:
            await log_in(client, "dave", "secret-of-dave")
        gone = await tools.run(_CONFIGS, "--alter", *user, "--delete-config", "SCRAM-SHA-512")
        assert "Completed updating config for user dave" in gone
        assert broker.security.users.names() == ["alice", "bob"]


async def test_a_rule(guarded: Guarded, authority: Authority, tmp_path: Path) -> None:
    """kafka-acls.sh adds rules and lists them."""
    async with guarded(authorization="on", super_users="User:alice") as broker:
        tools = Tools(broker, authority, tmp_path, "SCRAM-SHA-512")
        bob = ("--allow-principal", "User:bob", "--producer", "--topic", "clicks")
        rule = "principal=User:bob, host=*, operation=WRITE, permissionType=ALLOW"
        assert rule in await tools.run(_ACLS, "--add", *bob)
        assert rule in await tools.run(_ACLS, "--list")
        rights = broker.security.authorizer.rights("User:bob", "127.0.0.1")
        assert rights.may(Operation.WRITE, ResourceType.TOPIC, "clicks")


async def test_a_quota(guarded: Guarded, authority: Authority, tmp_path: Path) -> None:
    """kafka-configs.sh sets a quota of a user and shows it."""
    dave = ("--entity-type", "users", "--entity-name", "dave")
    async with guarded() as broker:
        tools = Tools(broker, authority, tmp_path, "SCRAM-SHA-512")
        rate = ("--add-config", "producer_byte_rate=1048576")
        assert "Completed updating" in await tools.run(_CONFIGS, "--alter", *dave, *rate)
        shown = await tools.run(_CONFIGS, "--describe", "--entity-type", "users")
        assert "Quota configs for user-principal 'dave' are producer_byte_rate=1048576.0" in shown
        quotas = broker.security.quotas.table.quotas.items()
        assert {str(entity): dict(each) for entity, each in quotas} == {
            "user dave": {"producer_byte_rate": 1048576.0}
        }


@pytest.mark.secure_clients
async def test_rules(guarded: Guarded, authority: Authority, tmp_path: Path) -> None:
    """kafka-acls.sh adds rules, lists them and takes them away; what they say holds."""
    topic = ("--topic", "clicks", "--resource-pattern-type", "prefixed")
    async with guarded(authorization="on", super_users="User:alice") as broker:
        tools = Tools(broker, authority, tmp_path, "SCRAM-SHA-512")
        added = await tools.run(
            _ACLS, "--add", "--allow-principal", "User:bob", "--producer", *topic
        )
        assert "principal=User:bob, host=*, operation=WRITE, permissionType=ALLOW" in added
        await tools.run(
            *(_ACLS, "--add", "--deny-principal", "User:*", "--deny-host", "10.9.8.7"),
            *("--operation", "All", "--group", "g"),
        )
        listed = await tools.run(_ACLS, "--list")
        assert "resourceType=TOPIC, name=clicks, patternType=PREFIXED" in listed
        assert "principal=User:*, host=10.9.8.7, operation=ALL, permissionType=DENY" in listed
        rights = broker.security.authorizer.rights("User:bob", "127.0.0.1")
        assert rights.may(Operation.WRITE, ResourceType.TOPIC, "clicks-2")
        assert not rights.may(Operation.READ, ResourceType.TOPIC, "clicks-2")
        await tools.run(_ACLS, "--remove", "--force", *topic)
        left = broker.security.acls.table.acls
        assert [acl.resource_type for acl in left] == [ResourceType.GROUP]


@pytest.mark.secure_clients
async def test_quotas(guarded: Guarded, authority: Authority, tmp_path: Path) -> None:
    """kafka-configs.sh sets quotas of users, clients and defaults, shows them beside the logins of
    users, and takes them away."""
    dave, client = ("--entity-name", "dave"), ("--entity-type", "clients")
    users, default = ("--entity-type", "users"), ("--entity-default",)
    async with guarded() as broker:
        tools = Tools(broker, authority, tmp_path, "SCRAM-SHA-512")

        async def alter(*arguments: str) -> None:
            assert "Completed updating" in await tools.run(_CONFIGS, "--alter", *arguments)

        rates = "producer_byte_rate=1048576,consumer_byte_rate=2097152,request_percentage=0.5"
        await alter(*users, *dave, "--add-config", rates)
        await alter(*users, *default, *client, *default, "--add-config", "producer_byte_rate=77")
        await alter(*client, *default, "--add-config", "controller_mutation_rate=1.5")
        shown = await tools.run(_CONFIGS, "--describe", *users)
        quotas, logins = shown.splitlines()[0], shown.splitlines()[1:]
        assert "Quota configs for user-principal 'dave' are" in quotas
        for value in ("producer_byte_rate=1048576.0", "request_percentage=0.5"):
            assert value in quotas
        told = [
            f"SCRAM credential configs for user-principal '{name}' are "
            f"SCRAM-SHA-256=iterations=4096, SCRAM-SHA-512=iterations=4096"
            for name in ("alice", "bob")
        ]
        assert logins == told
        shown = await tools.run(_CONFIGS, "--describe", *users, *client)
        assert (
            "the default user-principal, the default client-id are producer_byte_rate=77.0" in shown
        )
        shown = await tools.run(_CONFIGS, "--describe", *client, *default)
        assert "the default client-id are controller_mutation_rate=1.5" in shown
        await alter(*users, *dave, "--delete-config", "producer_byte_rate,request_percentage")
        await alter(*client, *default, "--delete-config", "controller_mutation_rate")
        left = {
            str(entity): dict(each) for entity, each in broker.security.quotas.table.quotas.items()
        }
        assert left == {
            "user dave": {"consumer_byte_rate": 2097152.0},
            "user the default, client-id the default": {"producer_byte_rate": 77.0},
        }


@pytest.mark.secure_clients
async def test_rules_of_each_kind(guarded: Guarded, authority: Authority, tmp_path: Path) -> None:
    """What else kafka-acls.sh adds, asks for and takes away: of consumers, of the cluster, by
    principal, by one rule."""
    async with guarded(authorization="on", super_users="User:alice") as broker:
        tools = Tools(broker, authority, tmp_path, "PLAIN")
        bob = ("--allow-principal", "User:bob")
        await tools.run(_ACLS, "--add", *bob, "--consumer", "--topic", "clicks", "--group", "g")
        await tools.run(_ACLS, "--add", *bob, "--operation", "IdempotentWrite", "--cluster")
        await tools.run(
            *(_ACLS, "--add", "--allow-principal", "User:carol", "--allow-host", "127.0.0.1"),
            *("--operation", "DescribeConfigs", "--topic", "*"),
        )
        rights = broker.security.authorizer.rights("User:bob", "127.0.0.1")
        assert rights.may(Operation.READ, ResourceType.TOPIC, "clicks")
        assert rights.may(Operation.READ, ResourceType.GROUP, "g")
        assert rights.may(Operation.IDEMPOTENT_WRITE, ResourceType.CLUSTER, "kafka-cluster")
        listed = await tools.run(_ACLS, "--list", "--principal", "User:carol")
        assert "operation=DESCRIBE_CONFIGS" in listed
        assert "User:bob" not in listed
        only_read = ("--operation", "Read", "--topic", "clicks")
        await tools.run(_ACLS, "--remove", "--force", *bob, *only_read)
        left = [str(acl) for acl in broker.security.acls.table.acls]
        assert not [acl for acl in left if "Read topic" in acl]
        assert [acl for acl in left if "Describe topic 'clicks'" in acl]


@pytest.mark.secure_clients
@pytest.mark.parametrize("mechanism", ["SCRAM-SHA-256", "SCRAM-SHA-512"])
async def test_a_password_is_changed(
    guarded: Guarded, authority: Authority, tmp_path: Path, mechanism: str
) -> None:
    """Who is there and gets another password logs in with that, and with the old one no more."""
    user = ("--entity-type", "users", "--entity-name", "bob")
    async with guarded() as broker:
        tools = Tools(broker, authority, tmp_path, "SCRAM-SHA-512")
        password = f"{mechanism}=[password=new-secret-of-bob]"
        await tools.run(_CONFIGS, "--alter", *user, "--add-config", password)
        async with wire(broker.addresses.native, tls=authority.trusting()) as client:
            await log_in(client, "bob", "new-secret-of-bob", mechanism)
        async with wire(broker.addresses.native, tls=authority.trusting()) as client:
            with pytest.raises(SaslAuthenticationFailed):
                await log_in(client, "bob", USERS["bob"], mechanism)


@pytest.mark.secure_clients
async def test_users_are_shown(guarded: Guarded, authority: Authority, tmp_path: Path) -> None:
    """Beside their quotas, which the tool asks for first and cannot do without."""
    shown = ("--describe", "--entity-type", "users")
    async with guarded() as broker:
        tools = Tools(broker, authority, tmp_path, "SCRAM-SHA-512")
        if _DESCRIBE_CLIENT_QUOTAS not in APIS:
            refused = await tools.refused(_CONFIGS, *shown)
            assert "does not support DESCRIBE_CLIENT_QUOTAS" in refused
            return
        told = await tools.run(_CONFIGS, *shown)
        for name in USERS:
            assert f"user-principal '{name}'" in told
        assert "SCRAM-SHA-512=iterations=" in told


@pytest.mark.secure_clients
async def test_who_has_no_right_to(guarded: Guarded, authority: Authority, tmp_path: Path) -> None:
    """Users and rules are changed by principals that may alter the cluster."""
    async with guarded(authorization="on", super_users="User:bob") as broker:
        tools = Tools(broker, authority, tmp_path, "SCRAM-SHA-512")
        refused = await tools.refused(_ACLS, "--list")
        assert "ClusterAuthorizationException" in refused
        assert broker.security.acls.table.acls == ()
