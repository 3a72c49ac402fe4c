// GPT-2 (Radford et al. 2019) as Hugging Face's GPT2LMHeadModel computes it.
//
// Units: "embeddings" (wte, wpe, and with a tied head ln_f), "block.0" ..., and with an own head
// "head" (ln_f, lm_head). A tied head makes "embeddings" the first and the last entry of a forward.
// Weights keep the layout and the names of the files: Conv1D weights are (in, out).
#ifndef STRATA_ZOO_GPT2_H_
#define STRATA_ZOO_GPT2_H_

#include <string>
#include <vector>

#include "strata/zoo/gpt2_config.h"
#include "strata/zoo/model.h"

namespace strata::zoo {

class Gpt2 final : public Model {
 public:
  explicit Gpt2(Gpt2Config config);

  const model::ModelSpec& spec() const override { return spec_; }
  int64_t vocab_size() const override { return config_.vocab_size; }
  int64_t max_positions() const override { return config_.n_positions; }
  void bind_units(std::vector<model::UnitStorage*> units) override { units_ = std::move(units); }

  LossOutput forward_loss(const Batch& batch, hooks::UnitRunner& runner) override;
  at::Tensor logits(const Batch& batch, hooks::UnitRunner& runner) override;
  at::Tensor next_logits(const at::Tensor& input_ids, const at::Tensor& position_ids,
                         const at::Tensor& mask, KeyValueCache& cache,
                         hooks::UnitRunner& runner) override;

  void initialize(int unit, int parameter, const at::Tensor& out, uint64_t seed) const override;
  std::vector<std::string> aliases_of(const std::string& parameter) const override;
  bool is_ignored_in_files(const std::string& name) const override;
  Status save_config(const std::string& folder) const override;

 private:
  // What a block attends to.
  struct Attention {
    at::Tensor mask;  // additive (B, 1, T, keys); undefined: causal
    double dropout = 0;
    KeyValueCache* cache = nullptr;  // generation only
  };

  const at::Tensor& parameter(int unit, int index) const;
  at::Tensor embed(const at::Tensor& ids, const at::Tensor& positions, bool is_training) const;
  at::Tensor block(int layer, const at::Tensor& input, const Attention& attention,
                   bool is_training) const;
  at::Tensor attend(int layer, const at::Tensor& x, const Attention& attention) const;
  at::Tensor activate(const at::Tensor& x) const;
  at::Tensor final_norm(const at::Tensor& x) const;
  const at::Tensor& head_weight() const;
  at::ScalarType mask_dtype() const;
  // Runs embeddings and blocks: (B, T, n_embd).
  at::Tensor hidden(const at::Tensor& ids, const at::Tensor& positions, const Attention& attention,
                    bool is_training, hooks::UnitRunner& runner) const;
  int head_unit() const { return config_.tie_word_embeddings ? 0 : last_unit_; }

  Gpt2Config config_;
  model::ModelSpec spec_;
  int last_unit_ = 0;
  std::vector<model::UnitStorage*> units_;
};

}  // namespace strata::zoo

#endif  // STRATA_ZOO_GPT2_H_
