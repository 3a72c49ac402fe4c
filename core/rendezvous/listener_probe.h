// Waiting until somebody listens at an address.
#ifndef STRATA_RENDEZVOUS_LISTENER_PROBE_H_
#define STRATA_RENDEZVOUS_LISTENER_PROBE_H_

#include <chrono>
#include <string>

#include "strata/base/status.h"

namespace strata::rendezvous {

// LibTorch's client waits a second between attempts and warns about each; this one looks every few
// milliseconds, in silence.
//
// Returns   kTimeout  nobody listened there in time; the message has the last reason
Status wait_for_listener(const std::string& host, int port, std::chrono::milliseconds timeout);

}  // namespace strata::rendezvous

#endif  // STRATA_RENDEZVOUS_LISTENER_PROBE_H_
