"""What the documents say is what the command does.

    documents_check.py SOURCE BUILD run     every ```sh run block, line by line, in a folder that looks like a clone
    documents_check.py SOURCE BUILD flags   every --flag that a document names is one of the command's or of a script's
"""

import pathlib
import re
import subprocess
import sys
import tempfile

DEADLINE_S = 100
FLAG = re.compile(r"(?<![\w-])--[a-z][a-z0-9-]*")


def documents(source):
    return sorted([*source.glob("*.md"), *source.glob("docs/*.md"), *source.glob("plugins/*/README.md")])


def run_blocks(text):
    return re.findall(r"^```sh run\n(.*?)^```", text, re.MULTILINE | re.DOTALL)


def make_clone(source, build, folder):
    (folder / "build" / "demo").mkdir(parents=True)
    (folder / "build" / "release").symlink_to(build)
    for name in ("configs", "tools"):
        (folder / name).symlink_to(source / name)
    make_text = f'source "{source}/tools/lib.sh" && make_text "{folder}/build/demo/kjv.txt"'
    subprocess.run(["bash", "-c", make_text], check=True, timeout=DEADLINE_S)


def check_run(source, build):
    blocks = [(path, block) for path in documents(source) for block in run_blocks(path.read_text())]
    if not blocks:
        return ["no document has a block ```sh run"]
    mistakes = []
    with tempfile.TemporaryDirectory(prefix="strata_documents_") as name:
        folder = pathlib.Path(name)
        make_clone(source, build, folder)
        for path, block in blocks:
            for line in filter(None, block.splitlines()):
                done = subprocess.run(["bash", "-c", line], cwd=folder, timeout=DEADLINE_S, text=True, capture_output=True)
                print(f"{path.name}: {line}: exit code {done.returncode}", flush=True)
                if done.returncode != 0:
                    mistakes.append(f"{path.relative_to(source)}: `{line}` ended with {done.returncode}:\n{done.stdout}{done.stderr}")
    return mistakes


def help_of(build, words):
    done = subprocess.run([str(build / "bin" / "strata"), *words, "--help"], timeout=DEADLINE_S, text=True, capture_output=True)
    if done.returncode != 0:
        raise SystemExit(f"strata {' '.join(words)} --help ended with {done.returncode}: {done.stderr}")
    return done.stdout


def known_flags(source, build):
    overview = help_of(build, [])
    commands = re.findall(r"^  ((?:bench |plugins )?[a-z]+)  ", overview, re.MULTILINE)
    if len(commands) < 10:
        raise SystemExit(f"the overview names {len(commands)} commands only:\n{overview}")
    known = {"--help", "--version"}
    for command in commands:
        known |= set(FLAG.findall(help_of(build, command.split())))
    for script in [*source.glob("tools/*.sh"), *source.glob("bench/*.sh"), *source.glob("bench/*.py")]:
        known |= set(FLAG.findall(script.read_text()))
    for program in ("tests/parity/strata_parity.cpp", "tests/abi/abi_lock_test.cpp"):
        known |= set(FLAG.findall((source / program).read_text()))
    return known


def check_flags(source, build):
    known = known_flags(source, build)
    # Those of programs that documents tell the reader to start beside ours.
    known |= {"--preset", "--build", "--target", "--standalone", "--parallel", "--test-dir", "--output-on-failure"}
    mistakes, found = [], 0
    for path in documents(source):
        for number, line in enumerate(path.read_text().splitlines(), 1):
            for flag in FLAG.findall(line):
                found += 1
                if flag not in known:
                    mistakes.append(f"{path.relative_to(source)}:{number}: {flag} is no flag of any command or script")
    print(f"{found} mentions of flags, {len(known)} flags known")
    return mistakes if found else ["no document names a flag"]


def main():
    source, build, what = pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2]), sys.argv[3]
    mistakes = {"run": check_run, "flags": check_flags}[what](source, build)
    print("\n".join(mistakes))
    return 1 if mistakes else 0


if __name__ == "__main__":
    sys.exit(main())
