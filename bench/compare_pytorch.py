"""Alternates rounds of Strata's and PyTorch's training steps and prints medians and ratios. Run by compare_pytorch.sh.

Every program of a round runs alone, one after the other, so that a slow minute of the machine meets all of them. A number is the
median over rounds of the median over steps.
"""
import argparse
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time

HERE = pathlib.Path(__file__).resolve().parent
LENGTH, BATCH, RANKS = 128, 4, 2
DEADLINE_S = 900  # of one program
KINDS = ["ours ddp", "PyTorch ddp", "ours fsdp", "PyTorch fsdp2", "ours one process", "PyTorch one process", "ours single",
         "LibTorch loop"]
# What is measured, by what it is divided, and the largest ratio that is wanted.
RATIOS = [
    ("ours ddp", "PyTorch ddp", 0.84),
    ("ours fsdp", "PyTorch fsdp2", 0.62),
    ("ours ddp", "ours one process", 1.06),
    ("ours fsdp", "ours one process", 1.06),
    ("ours one process", "PyTorch one process", 0.95),
    ("ours single", "LibTorch loop", 1.02),
]


def run(command, threads, **more):
    environment = dict(os.environ, OMP_NUM_THREADS=str(threads), **more)
    done = subprocess.run([str(part) for part in command], env=environment, stdout=subprocess.PIPE, text=True,
                          timeout=DEADLINE_S)
    if done.returncode != 0:
        sys.exit(f"compare_pytorch: exit code {done.returncode} of: {' '.join(map(str, command))}")
    return done.stdout


class Comparison:
    def __init__(self, args, name):
        self.args = args
        self.config = HERE / "configs" / f"{name}.json"
        self.model = json.loads(self.config.read_text())
        self.strata = pathlib.Path(args.build) / "bin" / "strata"
        self.loop = pathlib.Path(args.build) / "bin" / "libtorch_loop"
        self.python = pathlib.Path(args.venv) / "bin" / "python"

    def ours_command(self, verb, strategy, devices, batch):
        return [self.strata, "bench", verb, "--model", self.config, "--sequence-length", LENGTH, "--strategy", strategy,
                "--devices", devices, "--per-device-train-batch-size", batch]

    def ours(self, strategy, devices, batch, threads):
        with tempfile.TemporaryDirectory() as folder:
            output = pathlib.Path(folder) / "step.json"
            run(self.ours_command("step", strategy, devices, batch)
                + ["--learning-rate", "1e-4", "--weight-decay", "0.01", "--lr-scheduler-type", "constant", "--max-steps",
                   self.args.steps, "--skip-steps", self.args.skip, "--output", output], threads)
            return json.loads(output.read_text())

    def shape(self, batch, threads):
        return ["--layers", self.model["n_layer"], "--width", self.model["n_embd"], "--heads", self.model["n_head"], "--vocab",
                self.model["vocab_size"], "--length", LENGTH, "--batch", batch, "--threads", threads]

    def pytorch(self, strategy, batch, threads, ranks=1, steps=None, skip=None, **more):
        launcher = [self.python]
        if ranks > 1:
            launcher += ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", ranks]
        command = launcher + [HERE / "pytorch_step.py", "--strategy", strategy] + self.shape(batch, threads)
        command += ["--steps", self.args.steps if steps is None else steps, "--skip", self.args.skip if skip is None else skip]
        lines = [line for line in run(command, threads, **more).splitlines() if line.startswith("{")]
        return json.loads(lines[-1])

    def libtorch_loop(self, batch, threads):
        command = [self.loop] + self.shape(batch, threads) + ["--steps", self.args.steps, "--skip", self.args.skip]
        return json.loads(run(command, threads))

    def one(self, kind):
        return {
            "ours ddp": lambda: self.ours("ddp", RANKS, BATCH, 1),
            "PyTorch ddp": lambda: self.pytorch("ddp", BATCH, 1, RANKS),
            "ours fsdp": lambda: self.ours("fsdp", RANKS, BATCH, 1),
            "PyTorch fsdp2": lambda: self.pytorch("fsdp2", BATCH, 1, RANKS),
            "ours one process": lambda: self.ours("single", 1, RANKS * BATCH, RANKS),
            "PyTorch one process": lambda: self.pytorch("single", RANKS * BATCH, RANKS),
            "ours single": lambda: self.ours("single", 1, BATCH, 1),
            "LibTorch loop": lambda: self.libtorch_loop(BATCH, 1),
        }[kind]()

    def measure_startup(self):
        with tempfile.TemporaryDirectory() as folder:
            output = pathlib.Path(folder) / "startup.json"
            run(self.ours_command("startup", "ddp", RANKS, BATCH)
                + ["--repetitions", self.args.rounds, "--output", output], 1)
            ours = json.loads(output.read_text())["median_s"]
        theirs = statistics.median(
            self.pytorch("ddp", BATCH, 1, RANKS, 1, 0, BENCH_STARTED=repr(time.time()))["first_step_s"]
            for _ in range(self.args.rounds))
        return {"ours_s": ours, "torchrun_s": theirs}


def growth_of(result):
    return result["pss_growth_bytes"]


def judge(value, target, is_most=True):
    return "met" if (value <= target if is_most else value >= target) else "MISSED"


def compare(args, name):
    comparison = Comparison(args, name)
    results = {kind: [] for kind in KINDS}
    for number in range(args.rounds):
        for kind in KINDS:
            results[kind].append(comparison.one(kind))
            print(f"round {number + 1} of {args.rounds}: {kind:20} {results[kind][-1]['median_ms']:9.1f} ms", flush=True)
    medians = {kind: statistics.median(r["median_ms"] for r in rounds) for kind, rounds in results.items()}
    out = {"model": name, "median_ms": medians, "ratios": [], "rounds": results}
    print(f"\n{name}: sequence {LENGTH}, batch {BATCH} a rank, {RANKS} ranks x 1 thread, or one process")
    for kind, value in medians.items():
        print(f"  {kind:20} {value:9.1f} ms")
    for what, by, target in RATIOS:
        ratio = medians[what] / medians[by]
        out["ratios"].append({"what": what, "by": by, "ratio": ratio, "target": target})
        print(f"  {what + ' / ' + by:40} {ratio:6.3f}   at most {target:.2f}   {judge(ratio, target)}")
    print_memory(results, out)
    out["startup"] = startup = comparison.measure_startup()
    ratio = startup["ours_s"] / startup["torchrun_s"]
    print(f"  first step: ours {startup['ours_s']:.2f} s, torchrun {startup['torchrun_s']:.2f} s: {ratio:.3f}   at most 0.50   "
          f"{judge(ratio, 0.5)}\n")
    return out


def print_memory(results, out):
    growth = {kind: statistics.median(map(growth_of, results[kind]))
              for kind in ("ours ddp", "PyTorch ddp", "ours fsdp", "PyTorch fsdp2")}
    state = {kind: results[kind][-1]["state_bytes"] for kind in ("ours ddp", "ours fsdp")}
    for kind, value in growth.items():
        print(f"  {kind:20} {value / 2**20:9.1f} MiB resident growth of rank 0")
    share = (growth["ours ddp"] - growth["ours fsdp"]) / (state["ours ddp"] - state["ours fsdp"])
    out["pss_growth_bytes"], out["state_bytes"], out["saved_share"] = growth, state, share
    print(f"  fsdp saves {share:.3f} of what the formulas say   at least 0.80   {judge(share, 0.8, is_most=False)}")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--build", required=True)
    parser.add_argument("--venv", required=True)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=8)
    parser.add_argument("--skip", type=int, default=2)
    parser.add_argument("--model", action="append", choices=["gpt2-12x512", "gpt2-4x256"])
    parser.add_argument("--output", help="a JSON file for all numbers")
    args = parser.parse_args()
    out = [compare(args, name) for name in args.model or ["gpt2-12x512", "gpt2-4x256"]]
    if args.output:
        pathlib.Path(args.output).write_text(json.dumps(out, indent=2) + "\n")


if __name__ == "__main__":
    main()
