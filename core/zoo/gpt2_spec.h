// The units of a GPT-2: names, shapes and order.
#ifndef STRATA_ZOO_GPT2_SPEC_H_
#define STRATA_ZOO_GPT2_SPEC_H_

#include "strata/model/unit_spec.h"
#include "strata/zoo/gpt2_config.h"

namespace strata::zoo {

// Indices of parameters in their units.
namespace gpt2 {
enum Embeddings { kWte, kWpe, kTiedNormWeight, kTiedNormBias };
enum Head { kNormWeight, kNormBias, kLmHead };
enum Block {
  kLn1Weight,
  kLn1Bias,
  kAttnWeight,
  kAttnBias,
  kAttnProjWeight,
  kAttnProjBias,
  kLn2Weight,
  kLn2Bias,
  kFcWeight,
  kFcBias,
  kMlpProjWeight,
  kMlpProjBias,
};
}  // namespace gpt2

model::ModelSpec gpt2_spec(const Gpt2Config& config);

}  // namespace strata::zoo

#endif  // STRATA_ZOO_GPT2_SPEC_H_
