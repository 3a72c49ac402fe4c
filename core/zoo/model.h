// What a model of the zoo is to the rest of the host: units, a forward that gives the sum of
// losses, initial weights.
#ifndef STRATA_ZOO_MODEL_H_
#define STRATA_ZOO_MODEL_H_

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "strata/base/status.h"
#include "strata/hooks/unit_runner.h"
#include "strata/model/unit_spec.h"
#include "strata/model/unit_storage.h"

namespace strata::zoo {

// One micro-batch of token sequences.
struct Batch {
  at::Tensor input_ids;  // (B, T) int64
  at::Tensor labels;     // (B, T) int64, -100 where there is none; the model shifts them by one
  at::Tensor attention_mask;  // (B, T) int64, 1 for real tokens; undefined: all are
  // What the loss will be multiplied by before backward: gradients that a model computes ahead, in
  // 16 bits, are scaled by it so that small ones do not vanish. A wrong one costs precision alone.
  double loss_scale = 1;
};

struct LossOutput {
  at::Tensor loss_sum;  // fp32 scalar: the SUM of the token losses. Gradients are sums here; nobody
                        // divides
  int64_t label_tokens = 0;  // how many
};

// Keys and values of the tokens so far, one pair a layer, for generation.
struct KeyValueCache {
  std::vector<at::Tensor> keys;    // (B, heads, tokens, head width)
  std::vector<at::Tensor> values;  // likewise
};

class Model {
 public:
  virtual ~Model() = default;

  virtual const model::ModelSpec& spec() const = 0;
  virtual int64_t vocab_size() const = 0;
  virtual int64_t max_positions() const = 0;

  // Computes with the parameters of these storages from now on, one per unit of spec(). Borrowed.
  virtual void bind_units(std::vector<model::UnitStorage*> units) = 0;

  // The dtype of floating tensors that are neither parameters nor computed from them: attention
  // masks. Unset: that of the unit which uses them.
  void set_buffer_dtype(std::optional<at::ScalarType> dtype) { buffer_dtype_ = dtype; }

  // Forward of training, in the dtypes of the units. A batch without any label gives a loss of 0
  // that still has gradients (zeros).
  virtual LossOutput forward_loss(const Batch& batch, hooks::UnitRunner& runner) = 0;

  // fp32 (B, T, V). Positions count from 0.
  virtual at::Tensor logits(const Batch& batch, hooks::UnitRunner& runner) = 0;

  // For generation: logits (B, V) of the last token. `position_ids` (B, T) and `mask` (B, tokens of
  // the cache + T), 1 for real tokens. The cache grows by T.
  virtual at::Tensor next_logits(const at::Tensor& input_ids, const at::Tensor& position_ids,
                                 const at::Tensor& mask, KeyValueCache& cache,
                                 hooks::UnitRunner& runner) = 0;

  // Fills one parameter (fp32) with its initial value. Random numbers depend on `seed` and the
  // parameter's name alone.
  virtual void initialize(int unit, int parameter, const at::Tensor& out, uint64_t seed) const = 0;

  // Other names under which files may hold a parameter, for example without "transformer.".
  virtual std::vector<std::string> aliases_of(const std::string& parameter) const = 0;
  // Names in files that are no parameters and may be passed over (buffers, tied copies).
  virtual bool is_ignored_in_files(const std::string& name) const = 0;

  // Writes config.json and generation_config.json, as Hugging Face reads them, into an existing
  // folder.
  virtual Status save_config(const std::string& folder) const = 0;

 protected:
  at::ScalarType buffer_dtype(at::ScalarType of_unit) const {
    return buffer_dtype_.value_or(of_unit);
  }

 private:
  std::optional<at::ScalarType> buffer_dtype_;
};

// Makes the model of a Hugging Face folder's config.json, or of a configuration file. Reads no
// weights.
//
// Returns   kNotFound         no such file
//           kInvalidArgument  a field that is wrong, unknown or missing, with value and hint
//           kUnsupported      a model_type or an option that is not here
Result<std::unique_ptr<Model>> load_model(const std::string& path);

// Checks that a checkpoint's configuration and the model's, each a config.json or a folder with
// one, compute the same from the same weights. A checkpoint without one passes.
//
// Returns   kInvalidArgument  the fields that differ
Status check_same_model(const std::string& checkpoint, const std::string& model);

}  // namespace strata::zoo

#endif  // STRATA_ZOO_MODEL_H_
