// The error sink: the last text of each thread, and the way from a Status to the contract's codes.
#ifndef STRATA_DEVICE_ERROR_SINK_H_
#define STRATA_DEVICE_ERROR_SINK_H_

#include <string>

#include "strata/abi/types.h"
#include "strata/base/status.h"

namespace strata::device {

// Replaces the text of the calling thread. Never throws: without memory the text is lost.
void put_error(strata_status_t status, const char* text) noexcept;

// The status as the contract's code; a failing one leaves its text in the sink.
strata_status_t to_abi(const Status& status) noexcept;

}  // namespace strata::device

#endif  // STRATA_DEVICE_ERROR_SINK_H_
