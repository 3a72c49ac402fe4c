// What lies behind strata_strategy_t in a plugin written with the SDK, and the fence that every
// slot runs in. Internal to the SDK's glue.
#ifndef STRATA_SDK_STRATEGY_INSTANCE_H_
#define STRATA_SDK_STRATEGY_INSTANCE_H_

#include <cstdio>
#include <cstring>
#include <exception>
#include <memory>
#include <new>

#include "strata/abi/strategy.h"
#include "strata/sdk/host.h"
#include "strata/sdk/strategy.h"

// Members end in reverse: the strategy and its communicator before the memory of the barrier.
struct strata_strategy {
  strata_host_t* host = nullptr;
  const char* name = "";
  uint32_t world_size = 1;
  strata::sdk::Buffer barrier_memory;
  std::unique_ptr<strata::sdk::Strategy> strategy;
};

namespace strata::sdk {

// Tells the host's error sink, with "name: " in front unless it is there already.
inline strata_status_t fail(strata_host_t* host, const char* name, strata_status_t code,
                            const char* text) noexcept {
  if (code == STRATA_OK) code = STRATA_E_INTERNAL;
  const strata_host_log_1_t* log = services().log;
  if (log == nullptr) return code;
  const size_t length = std::strlen(name);
  char line[4096];
  if (length == 0 || (std::strncmp(text, name, length) == 0 && text[length] == ':')) {
    log->fail(host, code, text[0] != '\0' ? text : "failed without saying why");
  } else {
    std::snprintf(line, sizeof(line), "%s: %s", name,
                  text[0] != '\0' ? text : "failed without saying why");
    log->fail(host, code, line);
  }
  return code;
}

// Runs the body of a slot and lets nothing unwind out.
template <typename Body>
strata_status_t fence(strata_host_t* host, const char* name, Body&& body) noexcept {
  try {
    body();
    return STRATA_OK;
  } catch (const HostError& error) {
    // The host's own text says more; it is still in the sink.
    if (error.is_of_this_thread()) return error.code();
    return fail(host, name, error.code(), error.what());
  } catch (const Error& error) {
    return fail(host, name, error.code(), error.what());
  } catch (const std::bad_alloc&) {
    return fail(host, name, STRATA_E_OUT_OF_MEMORY,
                "no memory for the strategy's own bookkeeping. HINT: end other programs");
  } catch (const std::exception& error) {
    return fail(host, name, STRATA_E_INTERNAL, error.what());
  } catch (...) {
    return fail(host, name, STRATA_E_INTERNAL, "threw something that is not an exception");
  }
}

// The same for a slot of an instance.
template <typename Body>
strata_status_t fence(strata_strategy_t* self, Body&& body) noexcept {
  if (self == nullptr) return fail(nullptr, "strategy", STRATA_E_INVALID_ARGUMENT, "self is NULL");
  return fence(self->host, self->name, [&] { body(*self->strategy); });
}

}  // namespace strata::sdk

#endif  // STRATA_SDK_STRATEGY_INSTANCE_H_
