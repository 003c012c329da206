#!/usr/bin/python3
"""Runs the steps of action.yml that are scripts, as GitHub's runner does; those that use other actions are left out.

    action_steps.py TEMP INPUT=VALUE...

TEMP is the runner's folder for temporary files; outputs and summary are written there, to `output` and `summary`.
Exit 0 if each step succeeded, 1 if one failed, 2 if the file has what is not understood.
"""

import os
import re
import subprocess
import sys

import yaml

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))


def evaluated(text, values):
    """Replaces each `${{ name }}`."""
    def value(match):
        if match[1] not in values:
            print(f"action_steps.py: {match[0]} is not known", file=sys.stderr)
            sys.exit(2)
        return values[match[1]]
    return re.sub(r"\$\{\{ *([\w.]+) *\}\}", value, text)


def main():
    temp, given = sys.argv[1], dict(word.split("=", 1) for word in sys.argv[2:])
    with open(os.path.join(ROOT, "action.yml"), encoding="utf-8") as file:
        action = yaml.safe_load(file)
    values = {"runner.temp": temp, "github.action_path": ROOT}
    values |= {f"inputs.{name}": given.pop(name, about["default"]) for name, about in action["inputs"].items()}
    if given:
        print(f"action_steps.py: the action has no input {', '.join(given)}", file=sys.stderr)
        return 2
    files = {name: os.path.join(temp, file) for name, file in
             (("GITHUB_OUTPUT", "output"), ("GITHUB_STEP_SUMMARY", "summary"))}
    failed = False
    for step in action["runs"]["steps"]:
        if "run" not in step or (failed and step.get("if") != "always()"):
            continue
        env = os.environ | files | {name: evaluated(text, values) for name, text in step.get("env", {}).items()}
        script = ["bash", "--noprofile", "--norc", "-e", "-o", "pipefail", "-c", step["run"]]
        failed = subprocess.run(script, env=env, check=False).returncode != 0 or failed
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
