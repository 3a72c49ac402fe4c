// Where the host keeps the texts that plugins write through strata.host.log/1: one per thread.
#ifndef STRATA_PLUGIN_ERROR_SINK_H_
#define STRATA_PLUGIN_ERROR_SINK_H_

#include <string>

namespace strata::plugin {

class ErrorSink {
 public:
  virtual ~ErrorSink() = default;
  // The last text that was written on the calling thread since the last take(), or "". Clears it.
  virtual std::string take() = 0;
};

// What this host shows to every plugin that it loads.
struct HostOffer {
  // The host's tables by id; lives as long as the process.
  const void* (*get_table)(const char* id) = nullptr;
  // Borrowed; outlives every library and instance.
  ErrorSink* errors = nullptr;
};

}  // namespace strata::plugin

#endif  // STRATA_PLUGIN_ERROR_SINK_H_
