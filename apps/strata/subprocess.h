// Runs another command and waits for it.
#ifndef STRATA_APPS_SUBPROCESS_H_
#define STRATA_APPS_SUBPROCESS_H_

#include <string>
#include <vector>

#include "strata/base/status.h"

namespace strata::apps {

struct ProcessResult {
  int exit_code = 0;  // 128 + N if it was ended by signal N
  double wall_s = 0;
};

// This program's own path.
std::string own_path();

// Starts `args` (args[0] is a path), with `environment` ("NAME=value") over this process's, and its
// stdout to /dev/null if `is_quiet`. Waits until it ends.
Result<ProcessResult> run_process(const std::vector<std::string>& args, bool is_quiet,
                                  const std::vector<std::string>& environment = {});

}  // namespace strata::apps

#endif  // STRATA_APPS_SUBPROCESS_H_
