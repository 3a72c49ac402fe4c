#include "strata/zoo/gpt2_spec.h"

#include <string>

namespace strata::zoo {
namespace {

model::UnitSpec block_spec(const Gpt2Config& c, int64_t layer) {
  const std::string prefix = "transformer.h." + std::to_string(layer) + ".";
  const int64_t d = c.n_embd;
  return {"block." + std::to_string(layer),
          {{prefix + "ln_1.weight", {d}},
           {prefix + "ln_1.bias", {d}},
           {prefix + "attn.c_attn.weight", {d, 3 * d}},
           {prefix + "attn.c_attn.bias", {3 * d}},
           {prefix + "attn.c_proj.weight", {d, d}},
           {prefix + "attn.c_proj.bias", {d}},
           {prefix + "ln_2.weight", {d}},
           {prefix + "ln_2.bias", {d}},
           {prefix + "mlp.c_fc.weight", {d, c.n_inner}},
           {prefix + "mlp.c_fc.bias", {c.n_inner}},
           {prefix + "mlp.c_proj.weight", {c.n_inner, d}},
           {prefix + "mlp.c_proj.bias", {d}}}};
}

}  // namespace

model::ModelSpec gpt2_spec(const Gpt2Config& c) {
  const model::ParameterSpec norm_weight{"transformer.ln_f.weight", {c.n_embd}};
  const model::ParameterSpec norm_bias{"transformer.ln_f.bias", {c.n_embd}};
  model::ModelSpec spec;
  spec.units.push_back({"embeddings",
                        {{"transformer.wte.weight", {c.vocab_size, c.n_embd}},
                         {"transformer.wpe.weight", {c.n_positions, c.n_embd}}}});
  for (int64_t layer = 0; layer < c.n_layer; ++layer) spec.units.push_back(block_spec(c, layer));
  for (int unit = 0; unit < static_cast<int>(spec.units.size()); ++unit) {
    spec.order.push_back(unit);
  }
  if (c.tie_word_embeddings) {
    spec.units[0].parameters.push_back(norm_weight);
    spec.units[0].parameters.push_back(norm_bias);
    spec.order.push_back(0);
  } else {
    spec.order.push_back(static_cast<int>(spec.units.size()));
    spec.units.push_back(
        {"head", {norm_weight, norm_bias, {"lm_head.weight", {c.vocab_size, c.n_embd}}}});
  }
  return spec;
}

}  // namespace strata::zoo
