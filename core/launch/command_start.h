// When the user's command started.
#ifndef STRATA_LAUNCH_COMMAND_START_H_
#define STRATA_LAUNCH_COMMAND_START_H_

#include <cstdint>

namespace strata::launch {

// In nanoseconds of CLOCK_BOOTTIME: what the launcher says, or the start of this process.
int64_t command_start_ns();

}  // namespace strata::launch

#endif  // STRATA_LAUNCH_COMMAND_START_H_
