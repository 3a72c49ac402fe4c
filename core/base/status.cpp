#include "strata/base/status.h"

#include <cstdio>
#include <cstdlib>

namespace strata {

const char* code_name(Code code) {
  switch (code) {
    case Code::kOk: return "ok";
    case Code::kInvalidArgument: return "invalid argument";
    case Code::kUnsupported: return "unsupported";
    case Code::kOutOfMemory: return "out of memory";
    case Code::kTimeout: return "timed out";
    case Code::kAborted: return "aborted";
    case Code::kPeerLost: return "peer lost";
    case Code::kState: return "wrong state";
    case Code::kIo: return "input/output error";
    case Code::kNotFound: return "not found";
    case Code::kInternal: return "internal error";
  }
  return "unknown code";
}

namespace internal {

CheckFailure::CheckFailure(const char* condition, const char* file, int line) {
  text_ << file << ":" << line << ": check failed: " << condition << " ";
}

CheckFailure::~CheckFailure() {
  std::fprintf(stderr, "%s\n", text_.str().c_str());
  std::fflush(stderr);
  std::abort();
}

}  // namespace internal
}  // namespace strata
