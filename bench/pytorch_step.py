"""The rival of `strata bench step`: the same GPT-2 shapes under PyTorch, DDP and FSDP2 over gloo, or one process.

Run by compare_pytorch.sh; prints one JSON line on rank 0. Model: pre-norm blocks, tanh-approximated GELU, fused attention, tied
head, cross-entropy over all positions but the last, AdamW (fused), gradient clipping at 1. Synthetic tokens, seeded.
"""
import argparse
import json
import os
import statistics
import time

import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F


class Block(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.ln_1 = nn.LayerNorm(width)
        self.qkv = nn.Linear(width, 3 * width)
        self.proj = nn.Linear(width, width)
        self.ln_2 = nn.LayerNorm(width)
        self.fc = nn.Linear(width, 4 * width)
        self.out = nn.Linear(4 * width, width)

    def forward(self, x):
        batch, length, width = x.shape
        q, k, v = self.qkv(self.ln_1(x)).view(batch, length, 3, self.heads, width // self.heads).permute(2, 0, 3, 1, 4)
        attended = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.proj(attended.transpose(1, 2).reshape(batch, length, width))
        return x + self.out(F.gelu(self.fc(self.ln_2(x)), approximate="tanh"))


class Gpt(nn.Module):
    def __init__(self, layers, width, heads, vocab, length):
        super().__init__()
        self.wte = nn.Embedding(vocab, width)
        self.wpe = nn.Embedding(length, width)
        self.blocks = nn.ModuleList(Block(width, heads) for _ in range(layers))
        self.ln_f = nn.LayerNorm(width)

    def forward(self, ids):
        x = self.wte(ids) + self.wpe.weight[: ids.shape[1]]
        for block in self.blocks:
            x = block(x)
        logits = F.linear(self.ln_f(x), self.wte.weight)
        return F.cross_entropy(logits[:, :-1].reshape(-1, logits.shape[-1]), ids[:, 1:].reshape(-1))


def resident_bytes():
    """This process's share of resident memory."""
    with open("/proc/self/smaps_rollup") as file:
        return next(1024 * int(line.split()[1]) for line in file if line.startswith("Pss:"))


def main():
    started = float(os.environ.get("BENCH_STARTED", time.time()))
    parser = argparse.ArgumentParser()
    parser.add_argument("--strategy", choices=["single", "ddp", "fsdp2"], required=True)
    parser.add_argument("--layers", type=int, default=12)
    parser.add_argument("--width", type=int, default=512)
    parser.add_argument("--heads", type=int, default=8)
    parser.add_argument("--vocab", type=int, default=16384)
    parser.add_argument("--length", type=int, default=128)
    parser.add_argument("--batch", type=int, default=4)
    parser.add_argument("--steps", type=int, default=8)
    parser.add_argument("--skip", type=int, default=2)
    parser.add_argument("--threads", type=int, default=1)
    args = parser.parse_args()

    torch.set_num_threads(args.threads)
    torch.manual_seed(1)
    rank = 0
    if args.strategy != "single":
        dist.init_process_group("gloo")
        rank = dist.get_rank()
        dist.barrier()
    resident_before = resident_bytes()
    model = Gpt(args.layers, args.width, args.heads, args.vocab, args.length)
    if args.strategy == "ddp":
        model = nn.parallel.DistributedDataParallel(model)
    elif args.strategy == "fsdp2":
        from torch.distributed.fsdp import fully_shard

        mesh = dist.init_device_mesh("cpu", (dist.get_world_size(),))
        for block in model.blocks:
            fully_shard(block, mesh=mesh)
        fully_shard(model, mesh=mesh)
    # PyTorch 2.15 has a fused AdamW on CPU for plain and sharded tensors alike.
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, weight_decay=0.01, fused=True)
    generator = torch.Generator().manual_seed(7 + rank)
    ids = torch.randint(0, args.vocab, (args.batch, args.length), generator=generator)

    times = []
    first_step_s = None
    for _ in range(args.skip + args.steps):
        if args.strategy != "single":
            dist.barrier()
        begin = time.perf_counter()
        loss = model(ids)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        if first_step_s is None:
            first_step_s = time.time() - started
        times.append(time.perf_counter() - begin)
    if args.strategy != "single":
        dist.barrier()
    resident_growth = resident_bytes() - resident_before
    if rank == 0:
        print(json.dumps({
            "strategy": args.strategy,
            "median_ms": 1e3 * statistics.median(times[args.skip:]),
            "min_ms": 1e3 * min(times[args.skip:]),
            "first_step_s": first_step_s,
            "pss_growth_bytes": resident_growth,
            "loss": loss.item(),
        }), flush=True)
    if args.strategy != "single":
        dist.destroy_process_group()


if __name__ == "__main__":
    main()
