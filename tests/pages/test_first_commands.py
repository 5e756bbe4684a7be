"""Pages that begin with commands and are no session: the commands, at a broker with two clicks."""

import re
from pathlib import Path

from .shell import DOCS, Shell

SETUP = """\
$ horolog serve --data-dir data --set log.level=warning --set log.retention.ms=-1
$ printf '{"value": "%s", "timestamp_ms": %s}\\n' a 1479144272509 b 1479144272510 > clicks.json
$ horolog produce clicks --json < clicks.json
$ echo load | horolog produce demo-load
"""

AT_A_BROKER = {
    "README.md": "append-times",
    "glossary.md": "in-sync replicas",
    "append-times.md": "no message is as late as that",
    "clocks.md": "horolog_clock_ahead_seconds ",
    "concepts.md": "load",
    "dependencies.md": "pyarrow ",
    "memory.md": "horolog_buffered_bytes ",
    "migration.md": "topic clicks",
    "monitoring.md": "horolog_connections ",
    "windows.md": "messages",
    "security/quotas.md": "controller_mutation_rate",
}
"""Page -> a text in what its commands print."""

AT_A_STOPPED_BROKER = {"replication/metadata.md": "nothing is wrong"}


def first_commands(page: str) -> list[str]:
    """The commands of the first block of a page, without the output that it shows."""
    block = (DOCS / page).read_text(encoding="utf-8").split("\n```", 2)[1].partition("\n")[2]
    lines = re.sub(r"\\\n *", "", block).splitlines()
    entered = [line.removeprefix("$ ") for line in lines if line.startswith("$ ")] or lines
    return [line.replace(".venv/bin/", "").replace(" NAME ", " clicks ") for line in entered]


def test_the_first_commands_of_pages_work(tmp_path: Path) -> None:
    (tmp_path / "docs").symlink_to(DOCS)
    with Shell(tmp_path) as shell:
        shell.run(SETUP)
        for pages in (AT_A_BROKER, AT_A_STOPPED_BROKER):
            for page, expected in pages.items():
                entered = first_commands(page)
                said = shell.run("\n".join(f"$ {command}" for command in entered))
                answers = [line for line in said.splitlines() if not line.startswith("$ ")]
                assert expected in "\n".join(answers), (page, said)
                assert "horolog: error" not in said, (page, said)
            if pages is AT_A_BROKER:
                shell.run("$ # the broker is stopped")


def test_two_brokers_of_the_page_are_a_cluster(tmp_path: Path) -> None:
    leader, follower = first_commands("replication/README.md")
    with Shell(tmp_path) as shell:
        shell.run(f"$ {leader}")
        shell.run(f"$ {follower.replace('127.0.0.1:9192', 'off')}")
        assert "broker 1 leads" in shell.run("$ horolog cluster status")
