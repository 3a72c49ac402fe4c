// The configuration of a GPT-2, as `config.json` of Hugging Face spells it.
#ifndef STRATA_ZOO_GPT2_CONFIG_H_
#define STRATA_ZOO_GPT2_CONFIG_H_

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>

#include "strata/base/status.h"

namespace strata::zoo {

struct Gpt2Config {
  int64_t vocab_size = 50257;
  int64_t n_positions = 1024;
  int64_t n_embd = 768;
  int64_t n_layer = 12;
  int64_t n_head = 12;
  int64_t n_inner = 0;  // 4 * n_embd if the file says null
  std::string activation_function = "gelu_new";
  double resid_pdrop = 0.1;
  double embd_pdrop = 0.1;
  double attn_pdrop = 0.1;
  double layer_norm_epsilon = 1e-5;
  double initializer_range = 0.02;
  bool scale_attn_weights = true;
  bool scale_attn_by_inverse_layer_idx = false;
  bool tie_word_embeddings = true;
  int64_t bos_token_id = -1;
  int64_t eos_token_id = -1;
  nlohmann::json original;  // as read, for writing it back
};

// Checks every field: unknown ones, types, ranges, sizes that must divide. `where` opens messages.
Result<Gpt2Config> parse_gpt2_config(const nlohmann::json& json, const std::string& where);

// "" or the fields in which two models would compute something else from the same weights:
// "n_head 4 and 2". Rates of dropout are none.
std::string difference(const Gpt2Config& a, const Gpt2Config& b);

}  // namespace strata::zoo

#endif  // STRATA_ZOO_GPT2_CONFIG_H_
