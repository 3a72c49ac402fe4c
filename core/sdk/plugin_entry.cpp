#include "strata/sdk/plugin_entry.h"

#include <cstdio>
#include <cstring>
#include <exception>

#include "strata/sdk/host.h"
#include "strata/sdk/strategy_table.h"

namespace strata::sdk {
namespace {

// The oldest host that offers everything the glue asks for.
constexpr uint32_t kRequiredMinor = 1;
constexpr uint32_t kLeastErrorSize = 256;

const void* get_table(const char* id) {
  if (id == nullptr) return nullptr;
  if (std::strcmp(id, STRATA_STRATEGY_1) == 0) return &strategy_table();
  if (std::strcmp(id, STRATA_COLLECTIVES_1) == 0) return &collectives_table();
  if (std::strcmp(id, STRATA_ALIASES_X_1) == 0) return &aliases_table();
  return nullptr;
}

void deinit() { services() = {}; }

bool is_text(const char* text, size_t limit) {
  return text != nullptr && text[0] != '\0' && strnlen(text, limit) < limit;
}

// What is wrong with the hello, or null. Called once magic, size and the error buffer are good.
const char* find_fault(const strata_hello_t& hello) {
  if (!is_text(hello.host_id, STRATA_ID_MAX)) return "host_id is missing or too long";
  if (!is_text(hello.host_version, STRATA_VERSION_MAX))
    return "host_version is missing or too long";
  if (hello.get_table == nullptr) return "get_table is NULL";
  for (const uint64_t word : hello.reserved) {
    if (word != 0) return "a reserved word is not zero";
  }
  return nullptr;
}

template <typename... Values>
strata_status_t refuse(const strata_hello_t* hello, strata_status_t code, const char* format,
                       Values... values) {
  std::snprintf(hello->error, hello->error_size, format, values...);
  return code;
}

}  // namespace

strata_status_t enter_plugin(const PluginInfo& info, const strata_hello_t* hello,
                             strata_plugin_t* plugin) noexcept {
  // Nothing of a hello is used before these three hold; a stranger's is not written to.
  if (hello == nullptr || plugin == nullptr) return STRATA_E_INVALID_ARGUMENT;
  if (hello->magic != STRATA_HELLO_MAGIC || hello->struct_size != sizeof(strata_hello_t)) {
    return STRATA_E_INVALID_ARGUMENT;
  }
  if (hello->error == nullptr || hello->error_size < kLeastErrorSize) {
    return STRATA_E_INVALID_ARGUMENT;
  }
  if (hello->abi_major != STRATA_ABI_MAJOR || hello->abi_minor < kRequiredMinor) {
    return refuse(hello, STRATA_E_UNSUPPORTED,
                  "%s %s needs a host with ABI %u.%u or a later minor; this one offers %u.%u. "
                  "HINT: take a host and a plugin of the same major version",
                  info.id, info.version, STRATA_ABI_MAJOR, kRequiredMinor, hello->abi_major,
                  hello->abi_minor);
  }
  if (const char* fault = find_fault(*hello)) {
    return refuse(hello, STRATA_E_INVALID_ARGUMENT, "%s %s: the host's hello: %s", info.id,
                  info.version, fault);
  }
  if (const char* missing = services().fetch(hello)) {
    return refuse(hello, STRATA_E_UNSUPPORTED, "%s %s: the host has no table '%s'", info.id,
                  info.version, missing);
  }
  try {
    set_strategies(info.strategies());
  } catch (const std::exception& error) {
    return refuse(hello, STRATA_E_INTERNAL, "%s %s: %s", info.id, info.version, error.what());
  } catch (...) {
    return refuse(hello, STRATA_E_INTERNAL, "%s %s: its list of strategies threw", info.id,
                  info.version);
  }
  plugin->magic = STRATA_PLUGIN_MAGIC;
  plugin->struct_size = sizeof(strata_plugin_t);
  plugin->abi_major = STRATA_ABI_MAJOR;
  plugin->abi_built = STRATA_ABI_MINOR;
  plugin->abi_required = kRequiredMinor;
  plugin->id = info.id;
  plugin->version = info.version;
  plugin->get_table = get_table;
  plugin->deinit = deinit;
  return STRATA_OK;
}

}  // namespace strata::sdk
