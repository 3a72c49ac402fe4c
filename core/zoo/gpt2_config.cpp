#include "strata/zoo/gpt2_config.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <vector>

#include "strata/base/text.h"
#include "strata/formats/json.h"

namespace strata::zoo {
namespace {

using nlohmann::json;

// Keys that change the computation; all are read below.
const std::vector<std::string> kFields = {"vocab_size",
                                          "n_positions",
                                          "n_embd",
                                          "n_layer",
                                          "n_head",
                                          "n_inner",
                                          "activation_function",
                                          "resid_pdrop",
                                          "embd_pdrop",
                                          "attn_pdrop",
                                          "layer_norm_epsilon",
                                          "initializer_range",
                                          "scale_attn_weights",
                                          "scale_attn_by_inverse_layer_idx",
                                          "reorder_and_upcast_attn",
                                          "add_cross_attention",
                                          "pruned_heads",
                                          "tie_word_embeddings",
                                          "bos_token_id",
                                          "eos_token_id",
                                          "model_type"};

// Keys of Hugging Face's configurations that say nothing of what is computed here.
const std::vector<std::string> kHarmless = {"architectures",
                                            "transformers_version",
                                            "torch_dtype",
                                            "dtype",
                                            "use_cache",
                                            "pad_token_id",
                                            "sep_token_id",
                                            "cls_token_id",
                                            "decoder_start_token_id",
                                            "task_specific_params",
                                            "output_attentions",
                                            "output_hidden_states",
                                            "return_dict",
                                            "return_dict_in_generate",
                                            "use_return_dict",
                                            "_name_or_path",
                                            "name_or_path",
                                            "_attn_implementation",
                                            "_attn_implementation_autoset",
                                            "_from_model_config",
                                            "_commit_hash",
                                            "id2label",
                                            "label2id",
                                            "num_labels",
                                            "problem_type",
                                            "finetuning_task",
                                            "tokenizer_class",
                                            "prefix",
                                            "is_decoder",
                                            "is_encoder_decoder",
                                            "torchscript",
                                            "use_bfloat16",
                                            "chunk_size_feed_forward",
                                            "gradient_checkpointing",
                                            "n_ctx",
                                            "resid_dropout",
                                            "summary_activation",
                                            "summary_first_dropout",
                                            "summary_proj_to_labels",
                                            "summary_type",
                                            "summary_use_proj",
                                            "_num_labels",
                                            "cross_attention_hidden_size",
                                            "max_length",
                                            "min_length",
                                            "do_sample",
                                            "early_stopping",
                                            "num_beams",
                                            "temperature",
                                            "top_k",
                                            "top_p",
                                            "typical_p",
                                            "repetition_penalty",
                                            "length_penalty",
                                            "no_repeat_ngram_size",
                                            "bad_words_ids",
                                            "num_return_sequences",
                                            "diversity_penalty",
                                            "num_beam_groups",
                                            "encoder_no_repeat_ngram_size",
                                            "forced_bos_token_id",
                                            "forced_eos_token_id",
                                            "remove_invalid_values",
                                            "exponential_decay_length_penalty",
                                            "suppress_tokens",
                                            "begin_suppress_tokens",
                                            "output_scores",
                                            "tf_legacy_loss"};

bool contains(const std::vector<std::string>& list, const std::string& key) {
  return std::find(list.begin(), list.end(), key) != list.end();
}

Status check_keys(const json& object, const std::string& where) {
  for (const auto& [key, value] : object.items()) {
    if (contains(kFields, key) || contains(kHarmless, key)) continue;
    const std::string near = text::nearest(key, kFields);
    return invalid_argument(
        fmt::format("{}: unknown field '{}' with value {}. HINT: {}", where, key, value.dump(),
                    near.empty() ? "remove it, if it does not change what the model computes"
                                 : fmt::format("did you mean '{}'?", near)));
  }
  return {};
}

constexpr int64_t kMostLayers = 10'000;

Status check_positive(int64_t value, const char* key, const std::string& where) {
  if (value >= 1 && value <= (int64_t{1} << 31)) return {};
  return invalid_argument(
      fmt::format("{}: {} is {}. HINT: a whole number of at least 1", where, key, value));
}

Status check_probability(double value, const char* key, const std::string& where) {
  if (value >= 0 && value < 1) return {};
  return invalid_argument(
      fmt::format("{}: {} is {}. HINT: at least 0 and below 1", where, key, value));
}

// Options that change the computation and are not here.
Status check_unsupported(const json& object, const std::string& where) {
  for (const char* key : {"reorder_and_upcast_attn", "add_cross_attention"}) {
    STRATA_ASSIGN_OR_RETURN(const bool is_on, formats::get_bool_or(object, key, false, where));
    if (is_on) return unsupported(fmt::format("{}: {} = true is not supported", where, key));
  }
  if (const auto pruned = object.find("pruned_heads"); pruned != object.end() && !pruned->empty()) {
    return unsupported(
        fmt::format("{}: pruned_heads = {} is not supported. HINT: a model with all of its heads",
                    where, pruned->dump()));
  }
  return {};
}

Status check_values(const Gpt2Config& c, const std::string& where) {
  STRATA_RETURN_IF_ERROR(check_positive(c.vocab_size, "vocab_size", where));
  STRATA_RETURN_IF_ERROR(check_positive(c.n_positions, "n_positions", where));
  STRATA_RETURN_IF_ERROR(check_positive(c.n_embd, "n_embd", where));
  STRATA_RETURN_IF_ERROR(check_positive(c.n_layer, "n_layer", where));
  if (c.n_layer > kMostLayers) {
    return invalid_argument(
        fmt::format("{}: n_layer is {}. HINT: at most {}", where, c.n_layer, kMostLayers));
  }
  STRATA_RETURN_IF_ERROR(check_positive(c.n_head, "n_head", where));
  STRATA_RETURN_IF_ERROR(check_positive(c.n_inner, "n_inner", where));
  STRATA_RETURN_IF_ERROR(check_probability(c.resid_pdrop, "resid_pdrop", where));
  STRATA_RETURN_IF_ERROR(check_probability(c.embd_pdrop, "embd_pdrop", where));
  STRATA_RETURN_IF_ERROR(check_probability(c.attn_pdrop, "attn_pdrop", where));
  if (c.n_embd % c.n_head != 0) {
    return invalid_argument(
        fmt::format("{}: n_embd = {} does not divide by n_head = {}. HINT: heads share the width "
                    "evenly, for example n_head = {}",
                    where, c.n_embd, c.n_head, c.n_embd % 64 == 0 ? c.n_embd / 64 : 1));
  }
  static const std::vector<std::string> kActivations = {
      "gelu_new", "gelu_pytorch_tanh", "gelu", "relu", "silu", "swish", "tanh"};
  if (!contains(kActivations, c.activation_function)) {
    return unsupported(fmt::format("{}: activation_function '{}'. HINT: one of {}", where,
                                   c.activation_function, text::join(kActivations)));
  }
  if (!(c.layer_norm_epsilon > 0) || !(c.initializer_range > 0)) {
    return invalid_argument(
        fmt::format("{}: layer_norm_epsilon is {}, initializer_range is {}. HINT: both are above 0",
                    where, c.layer_norm_epsilon, c.initializer_range));
  }
  return {};
}

}  // namespace

Result<Gpt2Config> parse_gpt2_config(const json& object, const std::string& where) {
  STRATA_RETURN_IF_ERROR(check_keys(object, where));
  STRATA_RETURN_IF_ERROR(check_unsupported(object, where));
  Gpt2Config c;
  c.original = object;
  const std::array<std::pair<const char*, int64_t*>, 8> whole = {
      {{"vocab_size", &c.vocab_size},
       {"n_positions", &c.n_positions},
       {"n_embd", &c.n_embd},
       {"n_layer", &c.n_layer},
       {"n_head", &c.n_head},
       {"n_inner", &c.n_inner},
       {"bos_token_id", &c.bos_token_id},
       {"eos_token_id", &c.eos_token_id}}};
  for (const auto& [key, out] : whole) {
    STRATA_ASSIGN_OR_RETURN(*out, formats::get_int_or(object, key, *out, where));
  }
  if (!object.contains("n_inner") || object["n_inner"].is_null()) c.n_inner = 4 * c.n_embd;
  const std::array<std::pair<const char*, double*>, 5> real = {
      {{"resid_pdrop", &c.resid_pdrop},
       {"embd_pdrop", &c.embd_pdrop},
       {"attn_pdrop", &c.attn_pdrop},
       {"layer_norm_epsilon", &c.layer_norm_epsilon},
       {"initializer_range", &c.initializer_range}}};
  for (const auto& [key, out] : real) {
    STRATA_ASSIGN_OR_RETURN(*out, formats::get_double_or(object, key, *out, where));
  }
  const std::array<std::pair<const char*, bool*>, 3> flags = {
      {{"scale_attn_weights", &c.scale_attn_weights},
       {"scale_attn_by_inverse_layer_idx", &c.scale_attn_by_inverse_layer_idx},
       {"tie_word_embeddings", &c.tie_word_embeddings}}};
  for (const auto& [key, out] : flags) {
    STRATA_ASSIGN_OR_RETURN(*out, formats::get_bool_or(object, key, *out, where));
  }
  STRATA_ASSIGN_OR_RETURN(
      c.activation_function,
      formats::get_string_or(object, "activation_function", c.activation_function, where));
  STRATA_RETURN_IF_ERROR(check_values(c, where));
  return c;
}

std::string difference(const Gpt2Config& a, const Gpt2Config& b) {
  std::vector<std::string> out;
  const auto compare = [&](const char* name, const auto& left, const auto& right) {
    if (left != right) out.push_back(fmt::format("{} {} and {}", name, left, right));
  };
  compare("vocab_size", a.vocab_size, b.vocab_size);
  compare("n_positions", a.n_positions, b.n_positions);
  compare("n_embd", a.n_embd, b.n_embd);
  compare("n_layer", a.n_layer, b.n_layer);
  compare("n_head", a.n_head, b.n_head);
  compare("n_inner", a.n_inner, b.n_inner);
  compare("activation_function", a.activation_function, b.activation_function);
  compare("layer_norm_epsilon", a.layer_norm_epsilon, b.layer_norm_epsilon);
  compare("scale_attn_weights", a.scale_attn_weights, b.scale_attn_weights);
  compare("scale_attn_by_inverse_layer_idx", a.scale_attn_by_inverse_layer_idx,
          b.scale_attn_by_inverse_layer_idx);
  compare("tie_word_embeddings", a.tie_word_embeddings, b.tie_word_embeddings);
  return text::join(out);
}

}  // namespace strata::zoo
