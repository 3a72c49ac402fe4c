// A slower link than the machine's own, for measuring how much of its time hides behind compute.
#ifndef STRATA_APPS_PLAYED_LINK_H_
#define STRATA_APPS_PLAYED_LINK_H_

#include <cstdint>

#include "strata/base/status.h"

namespace strata::apps {

// Collectives of this process on CPU end no sooner from now on than their bytes need at
// `bytes_per_second`; 0 turns that off.
//
// Returns   kNotFound  the communication library for CPU is not there, or cannot do that
Status play_link(uint64_t bytes_per_second);

}  // namespace strata::apps

#endif  // STRATA_APPS_PLAYED_LINK_H_
