#include "strata/plugin/handshake.h"

#include <fmt/format.h>

#include <array>
#include <cstring>
#include <exception>
#include <vector>

namespace strata::plugin {
namespace {

constexpr const char* kHostId = "strata";
constexpr const char* kHostVersion = STRATA_VERSION;
constexpr size_t kErrorSize = 2048;
constexpr size_t kCanarySize = 64;
constexpr unsigned char kCanary = 0xA5;

// Memory that a plugin writes to, with bytes behind it that must not change.
template <typename T>
struct Fenced {
  T value{};
  std::array<unsigned char, kCanarySize> canary;

  Fenced() { canary.fill(kCanary); }
  bool is_whole() const {
    for (const unsigned char byte : canary) {
      if (byte != kCanary) return false;
    }
    return true;
  }
};

Status refuse(const std::string& path, const std::string& fault, const char* hint) {
  return invalid_argument(
      fmt::format("plugin '{}' breaks the contract: {}. HINT: {}", path, fault, hint));
}

constexpr const char* kRebuild = "build it with the headers in core/abi, which state the rule";

// The answer of an entry that did not return STRATA_OK.
Status refused_by_plugin(const std::string& path, strata_status_t status, const char* text) {
  const bool is_known = status > STRATA_OK && status <= STRATA_E_INTERNAL;
  const Code code = is_known ? static_cast<Code>(status) : Code::kInternal;
  if (text[0] == '\0') {
    return {code, fmt::format("plugin '{}' refuses this host with status {} and says no reason, "
                              "which is a bug of the plugin. HINT: ask its author",
                              path, status)};
  }
  return {code, fmt::format("plugin '{}' refuses this host: {}", path, text)};
}

}  // namespace

std::string find_id_fault(const char* text, size_t limit) {
  if (text == nullptr) return "is NULL";
  const size_t length = strnlen(text, limit);
  if (length == 0) return "is empty";
  if (length == limit) return fmt::format("does not end within {} bytes", limit);
  for (size_t i = 0; i < length; ++i) {
    const char c = text[i];
    const bool is_good = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
                         (c >= '0' && c <= '9') || c == '.' || c == '_' || c == '-' || c == '+';
    if (!is_good) {
      return fmt::format(
          "has the byte \\x{:02x} at {}; letters, digits, '.', '_', '-', '+' are allowed",
          static_cast<unsigned char>(c), i);
    }
  }
  return "";
}

Result<strata_plugin_t> shake_hands(strata_plugin_entry_fn entry, const HostOffer& offer,
                                    const std::string& path) {
  STRATA_CHECK(offer.get_table != nullptr && offer.errors != nullptr) << "the offer is empty";
  Fenced<std::array<char, kErrorSize>> error;
  Fenced<strata_plugin_t> plugin;
  auto* hello = new strata_hello_t{};  // NOLINT: lives until the process ends, as the contract says
  hello->magic = STRATA_HELLO_MAGIC;
  hello->struct_size = sizeof(*hello);
  hello->abi_major = STRATA_ABI_MAJOR;
  hello->abi_minor = STRATA_ABI_MINOR;
  hello->error_size = kErrorSize;
  hello->host_id = kHostId;
  hello->host_version = kHostVersion;
  hello->error = error.value.data();
  hello->get_table = offer.get_table;
  strata_status_t status = STRATA_E_INTERNAL;
  std::string thrown;
  try {
    status = entry(hello, &plugin.value);
  } catch (const std::exception& exception) {
    thrown = exception.what();
  } catch (...) {
    thrown = "something that is not a std::exception";
  }
  hello->error = nullptr;
  hello->error_size = 0;
  error.value.back() = '\0';
  if (!thrown.empty()) {
    return refuse(path, fmt::format("its entry threw '{}'; nothing may unwind out of it", thrown),
                  "catch everything inside the entry");
  }
  if (!error.is_whole()) {
    return refuse(path,
                  fmt::format("its entry wrote past the {} bytes of the error buffer", kErrorSize),
                  kRebuild);
  }
  if (!plugin.is_whole()) {
    return refuse(path, "its entry wrote past the end of strata_plugin_t", kRebuild);
  }
  if (status != STRATA_OK) return refused_by_plugin(path, status, error.value.data());
  STRATA_RETURN_IF_ERROR(check_plugin(plugin.value, path));
  return plugin.value;
}

Status check_plugin(const strata_plugin_t& plugin, const std::string& path) {
  if (plugin.magic != STRATA_PLUGIN_MAGIC) {
    return refuse(path,
                  fmt::format("magic is {:#018x}, not {:#018x}", plugin.magic, STRATA_PLUGIN_MAGIC),
                  kRebuild);
  }
  if (plugin.struct_size != sizeof(strata_plugin_t)) {
    return refuse(path,
                  fmt::format("strata_plugin_t has {} bytes, not {}", plugin.struct_size,
                              sizeof(strata_plugin_t)),
                  kRebuild);
  }
  if (plugin.abi_major != STRATA_ABI_MAJOR) {
    return unsupported(fmt::format(
        "plugin '{}' is built for ABI {}.{}, this host has {}.{}. HINT: take a plugin built for "
        "major version {}",
        path, plugin.abi_major, plugin.abi_built, STRATA_ABI_MAJOR, STRATA_ABI_MINOR,
        STRATA_ABI_MAJOR));
  }
  if (plugin.abi_required > STRATA_ABI_MINOR) {
    return unsupported(fmt::format(
        "plugin '{}' requires ABI {}.{}, this host offers up to {}.{}. HINT: take a newer host or "
        "an older plugin",
        path, plugin.abi_major, plugin.abi_required, STRATA_ABI_MAJOR, STRATA_ABI_MINOR));
  }
  if (plugin.abi_required > plugin.abi_built) {
    return refuse(path,
                  fmt::format("it requires minor {} but is built with {}", plugin.abi_required,
                              plugin.abi_built),
                  kRebuild);
  }
  if (STRATA_ABI_MAJOR == 0 && plugin.abi_built < STRATA_ABI_OLDEST_DRAFT) {
    return unsupported(fmt::format(
        "plugin '{}' is built for the draft {}.{}, whose layouts have changed since; this host "
        "speaks {}.{} to {}.{}. HINT: build it again",
        path, plugin.abi_major, plugin.abi_built, STRATA_ABI_MAJOR, STRATA_ABI_OLDEST_DRAFT,
        STRATA_ABI_MAJOR, STRATA_ABI_MINOR));
  }
  for (size_t i = 0; i < std::size(plugin.reserved); ++i) {
    if (plugin.reserved[i] != 0) {
      return refuse(path, fmt::format("reserved[{}] is {:#x}, not 0", i, plugin.reserved[i]),
                    "zero what is reserved");
    }
  }
  const std::string id_fault = find_id_fault(plugin.id, STRATA_ID_MAX);
  if (!id_fault.empty()) return refuse(path, "its id " + id_fault, kRebuild);
  const std::string version_fault = find_id_fault(plugin.version, STRATA_VERSION_MAX);
  if (!version_fault.empty()) return refuse(path, "its version " + version_fault, kRebuild);
  if (plugin.get_table == nullptr) return refuse(path, "get_table is NULL", kRebuild);
  if (plugin.deinit == nullptr) return refuse(path, "deinit is NULL", kRebuild);
  return {};
}

Status check_strategy_table(const strata_strategy_1_t* table, const std::string& path) {
  if (table == nullptr) {
    return refuse(path, "it has no table '" STRATA_STRATEGY_1 "'",
                  "it may be made for another version of the contract");
  }
  if (table->struct_size < sizeof(strata_strategy_1_t)) {
    return refuse(path,
                  fmt::format("its table '" STRATA_STRATEGY_1 "' has {} bytes, not {}",
                              table->struct_size, sizeof(strata_strategy_1_t)),
                  kRebuild);
  }
  if (table->reserved != 0) {
    return refuse(path, "the reserved word of its table '" STRATA_STRATEGY_1 "' is not 0",
                  "zero what is reserved");
  }
#define STRATA_SLOT(name) \
  { #name, table->name != nullptr }
  const std::vector<std::pair<const char*, bool>> slots = {STRATA_SLOT(count),
                                                           STRATA_SLOT(name),
                                                           STRATA_SLOT(describe),
                                                           STRATA_SLOT(option),
                                                           STRATA_SLOT(estimate),
                                                           STRATA_SLOT(create),
                                                           STRATA_SLOT(layout),
                                                           STRATA_SLOT(attach),
                                                           STRATA_SLOT(open_unit),
                                                           STRATA_SLOT(close_unit),
                                                           STRATA_SLOT(before_forward),
                                                           STRATA_SLOT(after_forward),
                                                           STRATA_SLOT(before_backward),
                                                           STRATA_SLOT(gradient_target),
                                                           STRATA_SLOT(after_backward),
                                                           STRATA_SLOT(end_backward),
                                                           STRATA_SLOT(partition_count),
                                                           STRATA_SLOT(partition),
                                                           STRATA_SLOT(before_step),
                                                           STRATA_SLOT(after_step),
                                                           STRATA_SLOT(all_reduce_small),
                                                           STRATA_SLOT(quiesce),
                                                           STRATA_SLOT(abort),
                                                           STRATA_SLOT(detach),
                                                           STRATA_SLOT(destroy)};
#undef STRATA_SLOT
  static_assert(sizeof(strata_strategy_1_t) == 2 * sizeof(uint32_t) + 25 * sizeof(void (*)()),
                "a slot is missing in the list above");
  for (const auto& [name, is_there] : slots) {
    if (!is_there) {
      return refuse(path,
                    fmt::format("the slot '{}' of its table '" STRATA_STRATEGY_1 "' is NULL", name),
                    "a slot that can do nothing returns a status");
    }
  }
  return {};
}

}  // namespace strata::plugin
