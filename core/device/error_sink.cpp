#include "strata/device/error_sink.h"

#include <utility>

#include "strata/device/host.h"

namespace strata::device {
namespace {

SinkText& sink() {
  thread_local SinkText text;
  return text;
}

}  // namespace

void put_error(strata_status_t status, const char* text) noexcept {
  try {
    sink().status = status;
    sink().text = text == nullptr ? "" : text;
  } catch (...) {
    sink().text.clear();
  }
}

strata_status_t to_abi(const Status& status) noexcept {
  const auto code = static_cast<strata_status_t>(status.code());
  if (!status.ok()) put_error(code, status.message().c_str());
  return code;
}

SinkText take_error() { return std::exchange(sink(), SinkText{}); }

}  // namespace strata::device
