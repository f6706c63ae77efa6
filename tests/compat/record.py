"""Records what Apache's own mqadmin prints on Apache's own cluster: `python -m tests.compat.record`.

Writes one file a command to tests/golden/mqadmin; test_mqadmin.py holds every other pair against them.
"""

import re
import sys
import tempfile
from collections.abc import Iterable
from pathlib import Path

from tests.compat.transcript import Outcome, java_mqadmin, session
from tests.support.apache import ApacheCluster
from tests.support.java import ROOT, Judge
from tests.support.normalised import normalised

# A stack trace's frames; what they say is in the lines before them.
_FRAME = re.compile(r"^\t(?:at |\.\.\. ).*\n", re.MULTILINE)
GOLDEN = ROOT / "tests" / "golden" / "mqadmin"


def rendered(outcomes: Iterable[Outcome], home: Path) -> dict[str, str]:
    """The text of each command's file, normalised, without stack frames, by the command's name."""
    files: dict[str, str] = {}
    for outcome in outcomes:
        text = f"$ mqadmin {' '.join(outcome.line)}\nexit {outcome.exit}\n"
        for title, stream in (("stdout", outcome.stdout), ("stderr", outcome.stderr)):
            if stream:
                end = "" if stream.endswith("\n") else "<no newline>\n"
                text += f"--- {title}\n{_FRAME.sub('', stream)}{end}"
        files[outcome.command] = files.get(outcome.command, "") + normalised(text.replace(str(home), "HOME"))
        files[outcome.command] += "\n"
    return files


def main() -> None:
    release = sys.argv[1] if len(sys.argv) > 1 else "4.9.7"
    with tempfile.TemporaryDirectory() as home:
        folder = Path(home)
        with ApacheCluster(release, folder) as cluster, Judge(release, folder / "judge") as judge:
            outcomes = session(java_mqadmin(judge), judge, cluster.address, cluster.broker.address)
            files = rendered(outcomes, folder)
    GOLDEN.mkdir(parents=True, exist_ok=True)
    for command, text in files.items():
        (GOLDEN / f"{command}.txt").write_text(text)
    print(f"{len(files)} files written to {GOLDEN.relative_to(ROOT)}")


if __name__ == "__main__":
    main()
