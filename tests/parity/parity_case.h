// A folder of reference values for one model, and how far a computation is off.
#ifndef STRATA_TESTS_PARITY_PARITY_CASE_H_
#define STRATA_TESTS_PARITY_PARITY_CASE_H_

#include <ATen/core/Tensor.h>

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "strata/base/status.h"
#include "strata/formats/json.h"
#include "strata/formats/safetensors.h"
#include "strata/zoo/model.h"

namespace strata::parity {

// A tensor of a file, copied: int64 or fp32.
Result<at::Tensor> read_tensor(const formats::SafetensorsFile& file, const std::string& name);

struct Case {
  std::string folder;
  formats::Json description;  // case.json
  std::unique_ptr<zoo::Model> model;
  zoo::Batch batch;              // all rows
  std::string precision = "32";  // that the values were computed in, as --precision
  // A case in 16 bits has losses alone.
  std::optional<formats::SafetensorsFile> expected;
  std::optional<formats::SafetensorsFile> final_weights;
  std::vector<formats::Json> steps;        // train.jsonl
  std::vector<formats::Json> generations;  // generation.jsonl; none if there is no such file
  int64_t end_token = -1;

  // Returns   kNotFound, kInvalidArgument  a file is missing or broken
  //           kUnsupported                 another family of models, or another dtype
  static Result<Case> load(const std::string& folder);

  const formats::Json& training() const { return description["training"]; }
  double tolerance(const std::string& name) const { return description["tolerance"].at(name); }
  // The rank's part of the whole batch, as many micro-batches on every rank: whole micro-batches in
  // turn, or, where there is one only, rows as evenly as possible. A part that would be empty has
  // no label.
  std::vector<zoo::Batch> part_of(int rank, int ranks) const;
};

// The largest differences of one run from a case; exact values count mismatches.
class Errors {
 public:
  explicit Errors(const Case& reference) : case_(reference) {}

  // |found - expected|, absolute or relative to `expected`.
  void add(const std::string& name, double error);
  // Final weights and gradients, but for the entries of `zero_gradient_entries`.
  Status add_weight(const std::string& parameter, const at::Tensor& found);
  Status add_gradient(const std::string& parameter, const at::Tensor& found);

  // The largest errors by name, and whether all are within the tolerances of the case.
  formats::Json to_json();
  bool is_within();

 private:
  at::Tensor counted_entries(const std::string& parameter, const at::Tensor& difference) const;
  double limit_of(const std::string& name) const;
  void add_999_in_1000();

  const Case& case_;
  std::vector<std::pair<std::string, double>> largest_;
  std::vector<at::Tensor> weight_errors_;
};

}  // namespace strata::parity

#endif  // STRATA_TESTS_PARITY_PARITY_CASE_H_
