"""The commands of Slurm that submitit calls, as little of them as it needs: elements are processes of this machine.

FOLDER/bin/…      sbatch, srun, sacct, and what keeps the state of an element
FOLDER/state/N_M  state of element M of job N
FOLDER/script     what sbatch was last given
FOLDER/asked      a line for every time that sacct was called
"""

from __future__ import annotations

import sys
from pathlib import Path

SBATCH = """#!{python}
import os, re, subprocess, sys
from pathlib import Path

folder, script = Path({folder!r}), Path(sys.argv[1]).read_text()
(folder / "script").write_text(script)
if "--partition=nowhere" in script:
    sys.exit("sbatch: error: invalid partition specified: nowhere")
number = str(len(list(folder.glob("state/*"))) + 1)
elements = re.search(r"--array=0-([0-9]+)", script)
for element in range(int(elements[1]) + 1) if elements else [None]:
    name = number if element is None else f"{{number}}_{{element}}"
    env = {{**os.environ, "SLURM_JOB_ID": number, "SLURM_JOB_NUM_NODES": "1"}}
    if element is not None:
        env |= {{"SLURM_ARRAY_JOB_ID": number, "SLURM_ARRAY_TASK_ID": str(element)}}
    state = folder / "state" / name
    state.write_text("RUNNING")
    words = [sys.executable, str(folder / "bin" / "keep"), sys.argv[1], str(state)]
    subprocess.Popen(words, env=env, start_new_session=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
print("Submitted batch job", number)
"""
KEEP = """
import subprocess, sys
from pathlib import Path

failed = subprocess.call(["bash", sys.argv[1]])
Path(sys.argv[2]).write_text("FAILED" if failed else "COMPLETED")
"""
SRUN = """#!{python}
import os, sys

words = sys.argv[1:]
job, element = os.environ["SLURM_JOB_ID"], os.environ.get("SLURM_ARRAY_TASK_ID")
while words[0].startswith("--"):
    word = words.pop(0)
    if word in ("--output", "--error"):
        name = words.pop(0).replace("%j", job).replace("%A", job).replace("%a", str(element)).replace("%t", "0")
        os.makedirs(os.path.dirname(name), exist_ok=True)
        where = os.open(name, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        os.dup2(where, 1 if word == "--output" else 2)
os.execv(words[0], words)
"""
SACCT = """#!{python}
from pathlib import Path

with Path({folder!r}, "asked").open("a") as asked:
    print("sacct", file=asked)
print("JobID|State|NodeList")
for state in Path({folder!r}, "state").iterdir():
    print(f"{{state.name}}|{{state.read_text()}}|here")
"""


def put_slurm_in(folder: Path) -> Path:
    """Write the commands; return the folder to put on the path."""
    (folder / "bin").mkdir(parents=True)
    (folder / "state").mkdir()
    for name, text in (("sbatch", SBATCH), ("keep", KEEP), ("srun", SRUN), ("sacct", SACCT)):
        place = folder / "bin" / name
        place.write_text(text.format(python=sys.executable, folder=str(folder)))
        place.chmod(0o755)
    return folder / "bin"
