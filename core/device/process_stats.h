// What the operating system says of this process, for metrics.
#ifndef STRATA_DEVICE_PROCESS_STATS_H_
#define STRATA_DEVICE_PROCESS_STATS_H_

#include <cstdint>

#include "strata/base/status.h"

namespace strata::device {

// Bytes of this process in RAM, each shared page divided by the number of its users (Pss of
// /proc/self/smaps_rollup): the sum over ranks counts shared memory once. Takes milliseconds.
Result<uint64_t> proportional_set_size();

// Largest resident size so far in bytes (VmHWM), shared pages counted whole.
Result<uint64_t> resident_peak();

// Resident size now in bytes (VmRSS), shared pages counted whole.
Result<uint64_t> resident_size();

// Seconds on a clock that never jumps, from an arbitrary start.
double monotonic_seconds();

}  // namespace strata::device

#endif  // STRATA_DEVICE_PROCESS_STATS_H_
