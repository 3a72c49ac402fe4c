// What went wrong: a code of abi/types.h and a text with values, place and a hint.
#ifndef STRATA_CCL_CPU_FAILURE_H_
#define STRATA_CCL_CPU_FAILURE_H_

#include <cstdint>
#include <string>

#include "strata/abi/types.h"

namespace strata::ccl {

struct [[nodiscard]] Failure {
  int32_t code = STRATA_OK;
  std::string text;

  bool happened() const { return code != STRATA_OK; }
};

// "doing what: No such file or directory"
Failure system_failure(const std::string& doing);

}  // namespace strata::ccl

#endif  // STRATA_CCL_CPU_FAILURE_H_
