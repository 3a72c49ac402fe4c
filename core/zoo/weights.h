// Weights in Hugging Face folders: reading them unit by unit, and writing them.
#ifndef STRATA_ZOO_WEIGHTS_H_
#define STRATA_ZOO_WEIGHTS_H_

#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>

#include "strata/base/status.h"
#include "strata/formats/safetensors.h"
#include "strata/zoo/model.h"

namespace strata::zoo {

class WeightFiles {
 public:
  // Opens model.safetensors, or the shards of its index, and holds names and shapes against the
  // model: all that is missing, left over or misshaped in one message. `path` may be a single file.
  static Result<WeightFiles> open(const std::string& path, const Model& model);

  // Copies the parameters of one unit into fp32 tensors of their shapes. F32, F16 and BF16 files.
  Status read_unit(int unit, std::span<const at::Tensor> parameters) const;

 private:
  WeightFiles(formats::SafetensorsFolder files, const model::ModelSpec& spec)
      : files_(std::make_shared<formats::SafetensorsFolder>(std::move(files))), spec_(&spec) {}

  std::shared_ptr<formats::SafetensorsFolder> files_;
  const model::ModelSpec* spec_;
  std::map<std::string, std::string> name_in_file_;  // by parameter
};

// Calls its argument once for every unit, in order, with the unit's fp32 parameters:
// strategy::Session::read_units.
using UnitReader = std::function<Status(
    const std::function<Status(int unit, std::span<const at::Tensor> parameters)>& visit)>;

// Writes model.safetensors into an existing folder, one unit in memory at a time. With `is_writing`
// false it reads all units (which is collective) and writes nothing.
Status write_weights(const std::string& folder, const Model& model, const UnitReader& read_units,
                     bool is_writing);

}  // namespace strata::zoo

#endif  // STRATA_ZOO_WEIGHTS_H_
