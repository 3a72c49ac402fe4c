#include "tests/world/ccl_fixture.h"

#include <dlfcn.h>

namespace strata::tests {

CclExtras CclExtras::open() {
  void* library = dlopen(ccl_library().c_str(), RTLD_NOW | RTLD_LOCAL);
  CclExtras extras{};
  const auto find = [&](const char* name, auto& out) {
    out = reinterpret_cast<std::remove_reference_t<decltype(out)>>(dlsym(library, name));
    EXPECT_NE(out, nullptr) << name;
  };
  find("strataCclSetTimeout", extras.set_timeout);
  find("strataCclSetLink", extras.set_link);
  find("strataCclSentBytes", extras.sent_bytes);
  find("strataCclError", extras.error);
  return extras;
}

}  // namespace strata::tests
