// Text generation with a causal language model: greedy, or sampled with temperature, top-k and
// top-p, with a key-value cache.
#ifndef STRATA_ZOO_GENERATE_H_
#define STRATA_ZOO_GENERATE_H_

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <optional>

#include "strata/base/status.h"
#include "strata/hooks/unit_runner.h"
#include "strata/zoo/model.h"

namespace strata::zoo {

struct GenerateOptions {
  int64_t max_new_tokens = 50;
  bool greedy = false;
  // Of sampling, applied in this order, as transformers does.
  double temperature = 1;  // logits are divided by it
  int64_t top_k = 0;       // only the k largest; 0: all
  double top_p = 1;        // only the fewest largest whose probabilities reach it
  uint64_t seed = 42;
  std::optional<int64_t> stop;    // a row ends with this token
  int64_t pad = 0;                // fills rows that have ended
  std::optional<int64_t> banned;  // never chosen: its logit is -inf
  // Only smaller ids are chosen: a model may have more tokens than its tokenizer. 0: all.
  int64_t usable_vocabulary = 0;
};

// Runs one forward pass: strategy::Session::infer.
using InferencePass =
    std::function<Status(const std::function<void(hooks::UnitRunner& runner)>& body)>;

// Continues each row of `input_ids` (B, T) int64; the prompts end at the right, and
// `attention_mask` (B, T), 1 for real tokens, hides padding at the left (undefined: there is none).
// Positions count from each row's first real token, so padding changes nothing.
//
// Each token is one pass; rows that have ended stay in the batch. Returns prompts and continuations
// (B, T + n), n <= max_new_tokens: it ends when all rows have ended. The same on every rank: the
// choice depends on the logits and `seed` alone, and each row draws from a generator of its own, so
// that a row does not depend on its neighbours. [collective if the pass is]
//
// Returns   kInvalidArgument  an empty prompt, a mask that is no left padding, ids outside of the
//                             vocabulary, prompt and new tokens beyond the model's positions, an
//                             option out of range
//           kInternal         logits that are not finite
//           what `infer` returns
Result<at::Tensor> generate(Model& model, const at::Tensor& input_ids,
                            const at::Tensor& attention_mask, const GenerateOptions& options,
                            const InferencePass& infer);

// What sampling draws from: logits (B, V) fp32 divided by the temperature, -inf where top-k and
// top-p leave a token out. At least one token of each row stays.
at::Tensor filter_logits(const at::Tensor& logits, const GenerateOptions& options);

}  // namespace strata::zoo

#endif  // STRATA_ZOO_GENERATE_H_
