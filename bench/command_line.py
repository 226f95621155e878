"""How long somebody waits for `lakebed tables list`, start of the process included: prints the seconds of each try as JSON."""

import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path

TRIES = 20
AIM_S = 0.7


def main() -> None:
    program = str(Path(sys.executable).with_name("lakebed"))
    with tempfile.TemporaryDirectory(prefix="lb-") as directory:
        place = ["--registry", f"sqlite:///{directory}/lake.db"]
        subprocess.run([program, "init", *place, "--warehouse", f"{directory}/warehouse"], check=True, stdout=subprocess.DEVNULL)
        seconds = sorted(measure([program, "tables", "list", *place]) for _ in range(TRIES))
    print(json.dumps({"work": "tables list", "aim_s": AIM_S, "median_s": seconds[TRIES // 2], "seconds": seconds}))


def measure(command: list[str]) -> float:
    began = time.perf_counter()
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    return round(time.perf_counter() - began, 4)


if __name__ == "__main__":
    main()
