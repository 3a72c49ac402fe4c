#include "strata/zoo/gpt2.h"

#include <ATen/ATen.h>
#include <ATen/CPUGeneratorImpl.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "strata/base/check.h"
#include "strata/formats/hash.h"
#include "strata/formats/json.h"
#include "strata/zoo/gpt2_spec.h"
#include "strata/zoo/head_loss.h"
#include "strata/zoo/layers.h"

namespace strata::zoo {
namespace {

at::Tensor positions_from_zero(const at::Tensor& ids) {
  return at::arange(ids.size(1), at::kLong).unsqueeze(0);
}

double lowest(at::ScalarType dtype) {
  switch (dtype) {
    case at::kBFloat16: return std::numeric_limits<at::BFloat16>::lowest();
    case at::kHalf: return std::numeric_limits<at::Half>::lowest();
    default: return std::numeric_limits<float>::lowest();
  }
}

// Additive mask (B, 1, T, keys) from key_mask (B, keys), 1 for real tokens, for the last T of
// `keys` tokens: causal, padding hidden. The lowest finite number, so that a row that may see
// nothing does not become NaN.
at::Tensor additive_mask(const at::Tensor& key_mask, int64_t length, at::ScalarType dtype) {
  const int64_t keys = key_mask.size(1);
  const at::Tensor causal =
      at::ones({length, keys}, at::kBool).tril(static_cast<int64_t>(keys - length));
  const at::Tensor allowed = causal.unsqueeze(0) & key_mask.to(at::kBool).unsqueeze(1);
  return at::zeros(allowed.sizes(), dtype)
      .masked_fill_(allowed.logical_not(), lowest(dtype))
      .unsqueeze(1);
}

bool hides_tokens(const at::Tensor& mask) {
  return mask.defined() && !mask.to(at::kBool).all().item<bool>();
}

}  // namespace

Gpt2::Gpt2(Gpt2Config config) : config_(std::move(config)), spec_(gpt2_spec(config_)) {
  last_unit_ = static_cast<int>(spec_.units.size()) - 1;
}

const at::Tensor& Gpt2::parameter(int unit, int index) const {
  STRATA_CHECK(static_cast<size_t>(unit) < units_.size()) << "bind_units() comes first";
  return units_[static_cast<size_t>(unit)]->parameter(static_cast<size_t>(index));
}

// ---- computation ----

LossOutput Gpt2::forward_loss(const Batch& batch, hooks::UnitRunner& runner) {
  Attention attention;
  attention.dropout = config_.attn_pdrop;
  if (hides_tokens(batch.attention_mask)) {
    attention.mask = additive_mask(batch.attention_mask, batch.input_ids.size(1), mask_dtype());
  }
  const at::Tensor x =
      hidden(batch.input_ids, positions_from_zero(batch.input_ids), attention, true, runner);
  // Token t predicts token t + 1: the last position predicts nothing.
  const int64_t last = batch.labels.size(1) - 1;
  const at::Tensor labels = batch.labels.narrow(1, 1, last).reshape({-1});
  LossOutput out;
  const double scale = batch.loss_scale;
  out.loss_sum = runner.enter(head_unit(), x, [this, labels, last, scale](const at::Tensor& x) {
    const at::Tensor rows = final_norm(x.narrow(1, 0, last)).reshape({-1, config_.n_embd});
    return head_loss(rows, head_weight(), labels, scale);
  });
  out.label_tokens = labels.ne(kNoLabel).sum().item<int64_t>();
  return out;
}

at::Tensor Gpt2::logits(const Batch& batch, hooks::UnitRunner& runner) {
  Attention attention;
  if (hides_tokens(batch.attention_mask)) {
    attention.mask = additive_mask(batch.attention_mask, batch.input_ids.size(1), mask_dtype());
  }
  const at::Tensor x =
      hidden(batch.input_ids, positions_from_zero(batch.input_ids), attention, false, runner);
  return runner.enter(head_unit(), x, [this](const at::Tensor& x) {
    return at::linear(final_norm(x), head_weight()).to(at::kFloat);
  });
}

at::Tensor Gpt2::next_logits(const at::Tensor& input_ids, const at::Tensor& position_ids,
                             const at::Tensor& mask, KeyValueCache& cache,
                             hooks::UnitRunner& runner) {
  cache.keys.resize(static_cast<size_t>(config_.n_layer));
  cache.values.resize(static_cast<size_t>(config_.n_layer));
  Attention attention;
  attention.mask = additive_mask(mask, input_ids.size(1), mask_dtype());
  attention.cache = &cache;
  const at::Tensor x = hidden(input_ids, position_ids, attention, false, runner);
  return runner.enter(head_unit(), x, [this](const at::Tensor& x) {
    const at::Tensor last = x.select(1, x.size(1) - 1);
    return at::linear(final_norm(last), head_weight()).to(at::kFloat);
  });
}

at::Tensor Gpt2::hidden(const at::Tensor& ids, const at::Tensor& positions,
                        const Attention& attention, bool is_training,
                        hooks::UnitRunner& runner) const {
  at::Tensor x = runner.enter(0, ids, [this, positions, is_training](const at::Tensor& ids) {
    return embed(ids, positions, is_training);
  });
  for (int layer = 0; layer < static_cast<int>(config_.n_layer); ++layer) {
    x = runner.enter(layer + 1, x, [this, layer, attention, is_training](const at::Tensor& x) {
      return block(layer, x, attention, is_training);
    });
  }
  return x;
}

at::Tensor Gpt2::embed(const at::Tensor& ids, const at::Tensor& positions, bool is_training) const {
  const at::Tensor x =
      look_up(parameter(0, gpt2::kWte), ids) + look_up(parameter(0, gpt2::kWpe), positions);
  return at::dropout(x, config_.embd_pdrop, is_training);
}

at::Tensor Gpt2::block(int layer, const at::Tensor& input, const Attention& attention,
                       bool is_training) const {
  const auto p = [&](int index) -> const at::Tensor& { return parameter(layer + 1, index); };
  const double eps = config_.layer_norm_epsilon;
  const at::Tensor x = input.to(p(gpt2::kLn1Weight).scalar_type());
  const at::Tensor h = layer_norm(x, p(gpt2::kLn1Weight), p(gpt2::kLn1Bias), eps);
  const at::Tensor attended =
      conv1d(attend(layer, h, attention), p(gpt2::kAttnProjWeight), p(gpt2::kAttnProjBias));
  const at::Tensor y = x + at::dropout(attended, config_.resid_pdrop, is_training);
  const at::Tensor n = layer_norm(y, p(gpt2::kLn2Weight), p(gpt2::kLn2Bias), eps);
  const at::Tensor inner = activate(conv1d(n, p(gpt2::kFcWeight), p(gpt2::kFcBias)));
  const at::Tensor out = conv1d(inner, p(gpt2::kMlpProjWeight), p(gpt2::kMlpProjBias));
  return y + at::dropout(out, config_.resid_pdrop, is_training);
}

// x (B, T, D) -> (B, T, D), heads joined.
at::Tensor Gpt2::attend(int layer, const at::Tensor& x, const Attention& attention) const {
  const int64_t batch = x.size(0);
  const int64_t length = x.size(1);
  const int64_t width = config_.n_embd / config_.n_head;
  double scale = config_.scale_attn_weights ? 1.0 / std::sqrt(static_cast<double>(width)) : 1.0;
  if (config_.scale_attn_by_inverse_layer_idx) scale /= layer + 1;
  const at::Tensor joined =
      conv1d(x, parameter(layer + 1, gpt2::kAttnWeight), parameter(layer + 1, gpt2::kAttnBias));
  const bool is_plain =
      !attention.mask.defined() && attention.cache == nullptr && attention.dropout == 0;
  if (is_plain) return causal_attention(joined, config_.n_head, scale);
  const at::Tensor qkv = joined.view({batch, length, 3, config_.n_head, width})
                             .permute({2, 0, 3, 1, 4});  // (3, B, heads, T, width)
  at::Tensor keys = qkv[1];
  at::Tensor values = qkv[2];
  if (attention.cache != nullptr) {
    at::Tensor& old_keys = attention.cache->keys[static_cast<size_t>(layer)];
    at::Tensor& old_values = attention.cache->values[static_cast<size_t>(layer)];
    if (old_keys.defined()) {
      keys = at::cat({old_keys, keys}, 2);
      values = at::cat({old_values, values}, 2);
    }
    old_keys = keys;
    old_values = values;
  }
  const bool is_causal = !attention.mask.defined();
  const std::optional<at::Tensor> mask =
      is_causal ? std::nullopt : std::optional<at::Tensor>(attention.mask);
  const at::Tensor out = at::scaled_dot_product_attention(qkv[0], keys, values, mask,
                                                          attention.dropout, is_causal, scale);
  return out.transpose(1, 2).reshape({batch, length, config_.n_embd});
}

at::Tensor Gpt2::activate(const at::Tensor& x) const {
  const std::string& name = config_.activation_function;
  if (name == "gelu") return at::gelu(x, "none");
  if (name == "relu") return at::relu(x);
  if (name == "silu" || name == "swish") return at::silu(x);
  if (name == "tanh") return at::tanh(x);
  return gelu_tanh(x);
}

at::Tensor Gpt2::final_norm(const at::Tensor& x) const {
  const int unit = head_unit();
  const bool is_tied = config_.tie_word_embeddings;
  const int weight = is_tied ? static_cast<int>(gpt2::kTiedNormWeight) : gpt2::kNormWeight;
  const int bias = is_tied ? static_cast<int>(gpt2::kTiedNormBias) : gpt2::kNormBias;
  return layer_norm(x.to(parameter(unit, weight).scalar_type()), parameter(unit, weight),
                    parameter(unit, bias), config_.layer_norm_epsilon);
}

// Blocks alone use masks.
at::ScalarType Gpt2::mask_dtype() const {
  return buffer_dtype(parameter(1, gpt2::kLn1Weight).scalar_type());
}

const at::Tensor& Gpt2::head_weight() const {
  return config_.tie_word_embeddings ? parameter(0, gpt2::kWte)
                                     : parameter(last_unit_, gpt2::kLmHead);
}

// ---- weights ----

void Gpt2::initialize(int unit, int index, const at::Tensor& out, uint64_t seed) const {
  const model::ParameterSpec& parameter =
      spec_.units[static_cast<size_t>(unit)].parameters[static_cast<size_t>(index)];
  const std::string& name = parameter.name;
  if (parameter.shape.size() == 1) {
    out.fill_(name.find("ln_") != std::string::npos && name.ends_with(".weight") ? 1.0 : 0.0);
    return;
  }
  double deviation = config_.initializer_range;
  // Projections into the residual stream, of which there are two a layer.
  if (name.ends_with("c_proj.weight")) {
    deviation /= std::sqrt(2.0 * static_cast<double>(config_.n_layer));
  }
  formats::Hash64 hash;
  hash.update(std::to_string(seed) + " " + name);
  out.normal_(0.0, deviation, at::detail::createCPUGenerator(hash.value()));
}

std::vector<std::string> Gpt2::aliases_of(const std::string& parameter) const {
  static const std::string kPrefix = "transformer.";
  if (!parameter.starts_with(kPrefix)) return {};
  return {parameter.substr(kPrefix.size())};  // files of the model without its head
}

bool Gpt2::is_ignored_in_files(const std::string& name) const {
  if (name.ends_with(".attn.bias") || name.ends_with(".attn.masked_bias")) return true;  // masks
  return config_.tie_word_embeddings && name == "lm_head.weight";
}

Status Gpt2::save_config(const std::string& folder) const {
  nlohmann::json config = config_.original;
  config["model_type"] = "gpt2";
  config["architectures"] = {"GPT2LMHeadModel"};
  STRATA_RETURN_IF_ERROR(formats::write_json(folder + "/config.json", config));
  nlohmann::json generation = nlohmann::json::object();
  if (config_.bos_token_id >= 0) generation["bos_token_id"] = config_.bos_token_id;
  if (config_.eos_token_id >= 0) generation["eos_token_id"] = config_.eos_token_id;
  return formats::write_json(folder + "/generation_config.json", generation);
}

}  // namespace strata::zoo
