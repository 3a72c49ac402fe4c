#include "strata/zoo/generate.h"

#include <ATen/ATen.h>
#include <ATen/CPUGeneratorImpl.h>
#include <fmt/format.h>

#include <limits>
#include <string>
#include <vector>

#include "strata/formats/hash.h"

namespace strata::zoo {
namespace {

constexpr float kNever = -std::numeric_limits<float>::infinity();

Status check_options(const GenerateOptions& o) {
  if (o.max_new_tokens < 1) {
    return invalid_argument(
        fmt::format("generate: max_new_tokens {}. HINT: at least 1", o.max_new_tokens));
  }
  if (o.usable_vocabulary < 0) {
    return invalid_argument(
        fmt::format("generate: usable_vocabulary {}. HINT: 0 for all tokens, or at least 1",
                    o.usable_vocabulary));
  }
  if (o.greedy) return {};
  if (!(o.temperature > 0)) {
    return invalid_argument(
        fmt::format("generate: temperature {} is not above 0. HINT: greedy generation takes the "
                    "likeliest token",
                    o.temperature));
  }
  if (o.top_k < 0) {
    return invalid_argument(
        fmt::format("generate: top_k {}. HINT: 0 for all tokens, or at least 1", o.top_k));
  }
  if (!(o.top_p > 0 && o.top_p <= 1)) {
    return invalid_argument(
        fmt::format("generate: top_p {} is not above 0 and at most 1. HINT: 0.9", o.top_p));
  }
  return {};
}

Status check_token(std::optional<int64_t> token, const std::string& name, int64_t vocabulary) {
  if (!token || (*token >= 0 && *token < vocabulary)) return {};
  return invalid_argument(
      fmt::format("generate: {} token {} is outside of the vocabulary of {}. HINT: 0 to {}", name,
                  *token, vocabulary, vocabulary - 1));
}

Status check_prompt(const Model& model, const at::Tensor& ids, const GenerateOptions& options) {
  if (ids.dim() != 2 || ids.size(0) == 0 || ids.size(1) == 0) {
    return invalid_argument(
        "generate: the prompt has no token. HINT: at least one, for example the end-of-text token");
  }
  const int64_t low = ids.min().item<int64_t>();
  const int64_t high = ids.max().item<int64_t>();
  if (low < 0 || high >= model.vocab_size()) {
    return invalid_argument(
        fmt::format("generate: the prompt has token {}, outside of the vocabulary of {}. HINT: use "
                    "the tokenizer that belongs to the model",
                    low < 0 ? low : high, model.vocab_size()));
  }
  STRATA_RETURN_IF_ERROR(check_token(options.stop, "stop", model.vocab_size()));
  STRATA_RETURN_IF_ERROR(check_token(options.banned, "banned", model.vocab_size()));
  return check_token(options.pad, "pad", model.vocab_size());
}

// Every row: zeros, then at least one 1.
Status check_mask(const at::Tensor& mask, const at::Tensor& ids) {
  if (mask.sizes() != ids.sizes()) {
    return invalid_argument(
        fmt::format("generate: the mask is {} x {}, the prompt {} x {}. HINT: one number a token",
                    mask.size(0), mask.dim() > 1 ? mask.size(1) : 1, ids.size(0), ids.size(1)));
  }
  for (int64_t row = 0; row < mask.size(0); ++row) {
    const at::Tensor real = mask[row].ne(0);
    if (!real[-1].item<bool>()) {
      return invalid_argument(
          fmt::format("generate: row {} of the prompt {}. HINT: prompts end at the right, padding "
                      "stands at the left",
                      row, real.any().item<bool>() ? "has padding at its end" : "has no token"));
    }
    const int64_t first = real.to(at::kInt).argmax().item<int64_t>();
    if (!real.slice(0, first).all().item<bool>()) {
      return invalid_argument(fmt::format(
          "generate: row {} of the prompt has padding after its first token, {}. HINT: padding "
          "stands at the left only",
          row, first));
    }
  }
  return {};
}

Status check_length(const Model& model, const at::Tensor& mask, const GenerateOptions& options) {
  const int64_t longest = mask.ne(0).sum(1).max().item<int64_t>();
  const int64_t positions = model.max_positions();
  // The last new token is not fed back.
  if (longest > positions) {
    return invalid_argument(
        fmt::format("generate: the prompt has {} tokens, the model {} positions. HINT: a prompt of "
                    "at most {} tokens",
                    longest, positions, positions));
  }
  if (longest + options.max_new_tokens - 1 > positions) {
    return invalid_argument(fmt::format(
        "generate: a prompt of {} tokens and {} new ones need {} positions, the model has {}. "
        "HINT: at most {} new tokens",
        longest, options.max_new_tokens, longest + options.max_new_tokens - 1, positions,
        positions - longest + 1));
  }
  return {};
}

// One generator a row.
std::vector<at::Generator> make_generators(uint64_t seed, int64_t rows) {
  std::vector<at::Generator> generators;
  for (int64_t row = 0; row < rows; ++row) {
    formats::Hash64 hash;
    hash.update(fmt::format("generate {} {}", seed, row));
    generators.push_back(at::detail::createCPUGenerator(hash.value()));
  }
  return generators;
}

// (B) int64.
at::Tensor choose(const at::Tensor& logits, const GenerateOptions& options,
                  std::vector<at::Generator>& generators) {
  if (options.greedy) return logits.argmax(1);
  const at::Tensor probabilities = at::softmax(filter_logits(logits, options), 1);
  std::vector<at::Tensor> chosen;
  for (size_t row = 0; row < generators.size(); ++row) {
    chosen.push_back(
        at::multinomial(probabilities[static_cast<int64_t>(row)], 1, false, generators[row]));
  }
  return at::cat(chosen);
}

}  // namespace

at::Tensor filter_logits(const at::Tensor& logits, const GenerateOptions& options) {
  at::Tensor kept = logits / options.temperature;
  const int64_t vocabulary = kept.size(1);
  if (options.top_k > 0 && options.top_k < vocabulary) {
    const at::Tensor smallest =
        std::get<0>(kept.topk(options.top_k, 1)).narrow(1, options.top_k - 1, 1);
    kept = kept.masked_fill(kept.lt(smallest), kNever);
  }
  if (options.top_p < 1) {
    const auto [sorted, order] = kept.sort(/*stable=*/true, 1, /*descending=*/true);
    const at::Tensor probabilities = at::softmax(sorted, 1);
    // A token goes when those before it reach top_p already; so the first one stays.
    const at::Tensor before = probabilities.cumsum(1) - probabilities;
    const at::Tensor goes = before.ge(options.top_p);
    goes.select(1, 0).fill_(false);
    kept = kept.masked_fill(at::zeros_like(goes).scatter(1, order, goes), kNever);
  }
  return kept;
}

Result<at::Tensor> generate(Model& model, const at::Tensor& input_ids,
                            const at::Tensor& attention_mask, const GenerateOptions& options,
                            const InferencePass& infer) {
  const at::NoGradGuard no_gradients;
  STRATA_RETURN_IF_ERROR(check_options(options));
  STRATA_RETURN_IF_ERROR(check_prompt(model, input_ids, options));
  at::Tensor mask =
      attention_mask.defined() ? attention_mask.to(at::kLong) : at::ones_like(input_ids);
  STRATA_RETURN_IF_ERROR(check_mask(mask, input_ids));
  STRATA_RETURN_IF_ERROR(check_length(model, mask, options));

  const int64_t rows = input_ids.size(0);
  std::vector<at::Generator> generators = make_generators(options.seed, rows);
  const at::Tensor pad = at::full({rows}, options.pad, at::kLong);
  at::Tensor ended = at::zeros({rows}, at::kBool);
  at::Tensor sequences = input_ids;
  at::Tensor next_ids = input_ids;
  at::Tensor positions = (mask.cumsum(1) - 1).clamp_min(0);
  KeyValueCache cache;
  for (int64_t made = 0; made < options.max_new_tokens; ++made) {
    at::Tensor logits;
    STRATA_RETURN_IF_ERROR(infer([&](hooks::UnitRunner& runner) {
      logits = model.next_logits(next_ids, positions, mask, cache, runner).to(at::kFloat);
    }));
    if (!logits.isfinite().all().item<bool>()) {
      return internal_error(fmt::format(
          "generate: the logits of new token {} are not finite. HINT: are the weights?", made));
    }
    if (options.banned) logits.select(1, *options.banned).fill_(kNever);
    if (options.usable_vocabulary > 0 && options.usable_vocabulary < logits.size(1)) {
      logits.slice(1, options.usable_vocabulary).fill_(kNever);
    }
    const at::Tensor chosen = at::where(ended, pad, choose(logits, options, generators));
    if (options.stop) ended = ended.logical_or(chosen.eq(*options.stop));
    next_ids = chosen.unsqueeze(1);
    sequences = at::cat({sequences, next_ids}, 1);
    if (ended.all().item<bool>()) break;
    mask = at::cat({mask, at::ones({rows, 1}, at::kLong)}, 1);
    positions = positions.narrow(1, positions.size(1) - 1, 1) + 1;
  }
  return sequences;
}

}  // namespace strata::zoo
