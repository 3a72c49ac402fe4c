"""Makes reference.json: what optimizers of PyTorch 2.15 (and, for Lion, LAMB and the Adafactor of
transformers, their formulas in float64) do with three small parameters in five steps.

    python tests/data/optim/make_reference.py > tests/data/optim/reference.json
"""

import json

import torch

SHAPES = {"w": (6, 10), "b": (9,), "c": (2, 3, 5)}
STEPS = 5


def numbers(tensor):
    return [float(x) for x in tensor.detach().float().reshape(-1)]


def draw(generator):
    return {name: torch.randn(shape, generator=generator) for name, shape in SHAPES.items()}


def with_torch(start, gradients, make):
    """`make` gets parameters that decay (two or more dimensions) and those that do not."""
    parameters = {name: torch.nn.Parameter(value.clone()) for name, value in start.items()}
    decaying = [p for p in parameters.values() if p.dim() >= 2]
    others = [p for p in parameters.values() if p.dim() < 2]
    optimizer = make(decaying, others)
    for gradient in gradients:
        for name, parameter in parameters.items():
            parameter.grad = gradient[name].clone()
        optimizer.step()
    return parameters


def lion(w, g, state, t, lr, decay, beta1=0.9, beta2=0.99):
    m = state.setdefault("m", torch.zeros_like(w))
    update = torch.sign(beta1 * m + (1 - beta1) * g)
    state["m"] = beta2 * m + (1 - beta2) * g
    return w - lr * (update + decay * w)


def lamb(w, g, state, t, lr, decay, beta1=0.9, beta2=0.999, eps=1e-6):
    m = state["m"] = beta1 * state.get("m", 0) + (1 - beta1) * g
    v = state["v"] = beta2 * state.get("v", 0) + (1 - beta2) * g * g
    u = m / (1 - beta1**t) / ((v / (1 - beta2**t)).sqrt() + eps) + decay * w
    return w - lr * (w.norm() / u.norm()) * u


def adafactor(w, g, state, t, lr, decay, scale_parameter=False, clip=1.0, rate=-0.8):
    beta2 = 1 - t**rate
    squares = g * g + 1e-30
    if w.dim() >= 2:
        row = state["row"] = beta2 * state.get("row", 0) + (1 - beta2) * squares.mean(-1)
        col = state["col"] = beta2 * state.get("col", 0) + (1 - beta2) * squares.mean(-2)
        factor = (row / row.mean(-1, keepdim=True)).rsqrt().unsqueeze(-1)
        u = g * factor * col.unsqueeze(-2).rsqrt()
    else:
        v = state["v"] = beta2 * state.get("v", 0) + (1 - beta2) * squares
        u = g * v.rsqrt()
    u = u / max(1.0, float(u.pow(2).mean().sqrt()) / clip)
    if scale_parameter:
        lr = lr * max(1e-3, float(w.pow(2).mean().sqrt()))
    return w - lr * decay * w - lr * u


def with_formula(start, gradients, formula, lr, decay, **options):
    out = {}
    for name, value in start.items():
        w, state = value.double(), {}
        for t, gradient in enumerate(gradients, 1):
            w = formula(w, gradient[name].double(), state, t, lr, decay if w.dim() >= 2 else 0.0, **options)
        out[name] = w
    return out


def main():
    generator = torch.Generator().manual_seed(1)
    start = draw(generator)
    gradients = [draw(generator) for _ in range(STEPS)]
    decay = 0.1

    def grouped(cls, lr, **options):
        def make(decaying, others):
            return cls([{"params": decaying, "weight_decay": decay}, {"params": others, "weight_decay": 0.0}], lr=lr, **options)
        return with_torch(start, gradients, make)

    cases = [
        ("adamw", {}, 0.01, decay, grouped(torch.optim.AdamW, 0.01)),
        ("adam", {}, 0.01, decay, grouped(torch.optim.Adam, 0.01)),
        ("sgd", {}, 0.01, decay, grouped(torch.optim.SGD, 0.01)),
        ("sgd", {"momentum": 0.9}, 0.01, decay, grouped(torch.optim.SGD, 0.01, momentum=0.9)),
        ("sgd", {"momentum": 0.9, "nesterov": True}, 0.01, decay, grouped(torch.optim.SGD, 0.01, momentum=0.9, nesterov=True)),
        ("adagrad", {"epsilon": 1e-10}, 0.01, decay, grouped(torch.optim.Adagrad, 0.01, eps=1e-10)),
        # PyTorch's Adafactor always scales by the parameter; its rate is min(lr, 1 / sqrt(t)), here lr.
        ("adafactor", {"scale_parameter": True}, 0.01, 0.0, with_torch(
            start, gradients, lambda a, b: torch.optim.Adafactor(a + b, lr=0.01, eps=(1e-30, 1e-3), weight_decay=0.0))),
        ("adafactor", {"scale_parameter": True}, 0.01, decay, with_formula(start, gradients, adafactor, 0.01, decay, scale_parameter=True)),
        ("adafactor", {}, 0.01, decay, with_formula(start, gradients, adafactor, 0.01, decay)),
        ("adafactor", {"clip_threshold": 0.5, "decay_rate": -0.6}, 0.01, decay, with_formula(start, gradients, adafactor, 0.01, decay, clip=0.5, rate=-0.6)),
        ("lion", {"beta2": 0.99}, 0.01, decay, with_formula(start, gradients, lion, 0.01, decay)),
        ("lamb", {"epsilon": 1e-6}, 0.01, decay, with_formula(start, gradients, lamb, 0.01, decay)),
    ]
    print(json.dumps({
        "torch": torch.__version__.split("+")[0],
        "shapes": SHAPES,
        "start": {name: numbers(value) for name, value in start.items()},
        "gradients": [{name: numbers(value) for name, value in step.items()} for step in gradients],
        "cases": [{"name": name, "options": options, "learning_rate": lr, "weight_decay": wd, "final": {k: numbers(v) for k, v in final.items()}}
                  for name, options, lr, wd, final in cases],
    }))


main()
