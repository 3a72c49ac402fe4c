// The rival of `strata bench step --strategy single`: the same GPT-2 in a training loop as a user
// of LibTorch would write it by hand, without Strata. Prints one JSON line.
//
//   libtorch_loop --layers 12 --width 512 --heads 8 --vocab 16384 --length 128 --batch 4 --threads
//   1
//
// Own leaves, autograd's .grad, clipping at 1, LibTorch's fused AdamW. Tokens are made up and
// seeded.
#include <ATen/ATen.h>
#include <ATen/CPUGeneratorImpl.h>
#include <ATen/Parallel.h>
#include <ATen/ops/_fused_adamw.h>
#include <torch/csrc/autograd/autograd.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <string>
#include <vector>

namespace {

struct Shape {
  int64_t layers = 12, width = 512, heads = 8, vocab = 16384, length = 128, batch = 4;
  int64_t threads = 1, steps = 8, skip = 2;
};

// A flag's value, or an end of the program that names what is wrong.
bool parse(int argc, char** argv, Shape& shape) {
  const std::map<std::string, int64_t*> flags = {
      {"--layers", &shape.layers}, {"--width", &shape.width},     {"--heads", &shape.heads},
      {"--vocab", &shape.vocab},   {"--length", &shape.length},   {"--batch", &shape.batch},
      {"--steps", &shape.steps},   {"--threads", &shape.threads}, {"--skip", &shape.skip}};
  for (int i = 1; i < argc; i += 2) {
    const auto flag = flags.find(argv[i]);
    const int64_t value = i + 1 < argc ? std::atoll(argv[i + 1]) : 0;
    if (flag == flags.end() || value < 1) {
      std::fprintf(stderr, "libtorch_loop: %s needs a number of at least 1, or is unknown\n",
                   argv[i]);
      return false;
    }
    *flag->second = value;
  }
  return true;
}

class Gpt2 {
 public:
  explicit Gpt2(const Shape& shape) : shape_(shape), random_(at::detail::createCPUGenerator(1)) {
    const int64_t d = shape.width;
    wte_ = weight({shape.vocab, d});
    wpe_ = weight({shape.length, d});
    for (int64_t layer = 0; layer < shape.layers; ++layer) {
      blocks_.push_back({ones(d), zeros(d), weight({3 * d, d}), zeros(3 * d), weight({d, d}),
                         zeros(d), ones(d), zeros(d), weight({4 * d, d}), zeros(4 * d),
                         weight({d, 4 * d}), zeros(d)});
    }
    norm_weight_ = ones(d);
    norm_bias_ = zeros(d);
  }

  // The mean loss of predicting ids[:, 1:].
  at::Tensor loss(const at::Tensor& ids) const {
    const int64_t length = ids.size(1);
    at::Tensor x = at::embedding(wte_, ids) + wpe_.narrow(0, 0, length);
    for (const Block& block : blocks_) x = forward(block, x);
    x = at::layer_norm(x, {shape_.width}, norm_weight_, norm_bias_);
    const at::Tensor logits = at::linear(x, wte_).narrow(1, 0, length - 1);
    return at::cross_entropy_loss(logits.reshape({-1, shape_.vocab}),
                                  ids.narrow(1, 1, length - 1).reshape({-1}));
  }

  const std::vector<at::Tensor>& parameters() const { return parameters_; }

 private:
  struct Block {
    at::Tensor ln1_weight, ln1_bias, qkv_weight, qkv_bias, proj_weight, proj_bias;
    at::Tensor ln2_weight, ln2_bias, fc_weight, fc_bias, out_weight, out_bias;
  };

  at::Tensor forward(const Block& p, const at::Tensor& x) const {
    const int64_t d = shape_.width;
    const int64_t batch = x.size(0);
    const int64_t length = x.size(1);
    const at::Tensor qkv =
        at::linear(at::layer_norm(x, {d}, p.ln1_weight, p.ln1_bias), p.qkv_weight, p.qkv_bias)
            .view({batch, length, 3, shape_.heads, d / shape_.heads})
            .permute({2, 0, 3, 1, 4});
    const at::Tensor attended =
        at::scaled_dot_product_attention(qkv[0], qkv[1], qkv[2], {}, 0.0, true)
            .transpose(1, 2)
            .reshape({batch, length, d});
    const at::Tensor y = x + at::linear(attended, p.proj_weight, p.proj_bias);
    const at::Tensor h = at::layer_norm(y, {d}, p.ln2_weight, p.ln2_bias);
    return y + at::linear(at::gelu(at::linear(h, p.fc_weight, p.fc_bias), "tanh"), p.out_weight,
                          p.out_bias);
  }

  at::Tensor keep(at::Tensor tensor) {
    tensor.set_requires_grad(true);
    parameters_.push_back(tensor);
    return tensor;
  }
  at::Tensor weight(at::IntArrayRef sizes) {
    return keep(at::empty(sizes).normal_(0, 0.02, random_));
  }
  at::Tensor ones(int64_t size) { return keep(at::ones({size})); }
  at::Tensor zeros(int64_t size) { return keep(at::zeros({size})); }

  Shape shape_;
  at::Generator random_;
  std::vector<at::Tensor> parameters_;
  at::Tensor wte_, wpe_, norm_weight_, norm_bias_;
  std::vector<Block> blocks_;
};

class AdamW {
 public:
  explicit AdamW(const std::vector<at::Tensor>& parameters) : parameters_(parameters) {
    for (const at::Tensor& parameter : parameters) {
      detached_.push_back(parameter.detach());
      exp_avgs_.push_back(at::zeros_like(parameter));
      exp_avg_sqs_.push_back(at::zeros_like(parameter));
      steps_.push_back(at::zeros({}));
    }
  }

  void step() {
    std::vector<at::Tensor> gradients;
    for (const at::Tensor& parameter : parameters_) gradients.push_back(parameter.grad());
    clip(gradients);
    for (at::Tensor& step : steps_) step.add_(1);
    at::_fused_adamw_(detached_, gradients, exp_avgs_, exp_avg_sqs_, {}, steps_, 1e-4, 0.9, 0.999,
                      0.01, 1e-8, false, false);
    for (at::Tensor& parameter : parameters_) parameter.mutable_grad().reset();
  }

 private:
  static void clip(const std::vector<at::Tensor>& gradients) {
    std::vector<at::Tensor> norms;
    for (const at::Tensor& gradient : gradients) norms.push_back(at::norm(gradient, 2));
    const double norm = at::norm(at::stack(norms), 2).item<double>();
    const double factor = std::min(1.0, 1.0 / (norm + 1e-6));
    if (factor < 1.0) {
      for (at::Tensor gradient : gradients) gradient.mul_(factor);
    }
  }

  std::vector<at::Tensor> parameters_, detached_, exp_avgs_, exp_avg_sqs_, steps_;
};

double now_ms() {
  const auto time = std::chrono::steady_clock::now().time_since_epoch();
  return std::chrono::duration<double, std::milli>(time).count();
}

}  // namespace

int main(int argc, char** argv) {
  Shape shape;
  if (!parse(argc, argv, shape)) return 2;
  at::set_num_threads(static_cast<int>(shape.threads));
  const Gpt2 model(shape);
  AdamW optimizer(model.parameters());
  const at::Tensor ids = at::randint(0, shape.vocab, {shape.batch, shape.length},
                                     at::detail::createCPUGenerator(7), at::kLong);
  std::vector<double> times;
  double loss = 0;
  for (int64_t step = 0; step < shape.skip + shape.steps; ++step) {
    const double begin = now_ms();
    const at::Tensor mean = model.loss(ids);
    mean.backward();
    optimizer.step();
    loss = mean.item<double>();
    times.push_back(now_ms() - begin);
  }
  std::sort(times.begin() + shape.skip, times.end());
  std::printf(
      "{\"strategy\": \"libtorch_loop\", \"threads\": %lld, \"median_ms\": %.3f, \"min_ms\": %.3f, "
      "\"loss\": %.9g}\n",
      static_cast<long long>(shape.threads),
      times[static_cast<size_t>(shape.skip + shape.steps / 2)],
      times[static_cast<size_t>(shape.skip)], loss);
  return 0;
}
