// How a shared library becomes a Strata plugin: one exported function, one handshake.
//
// Story. The host opens the library (absolute path, RTLD_NOW | RTLD_LOCAL), looks up
// STRATA_PLUGIN_ENTRY_NAME, fills a strata_hello_t, zeroes a strata_plugin_t, and calls the entry
// once. The plugin checks the hello, fills the strata_plugin_t and returns STRATA_OK; or writes a
// sentence into `hello->error` and returns another status, and is never called again. From then on
// everything is a function table found by string id and revision:
// plugin->get_table("strata.strategy/1"), hello->get_table("strata.host.memory/1").
//
// The structs of this file are frozen for ever. Every field is validated from day one:
//   magic         both sides, exactly
//   struct_size   exactly sizeof: these structs never grow
//   abi_major     equal on both sides
//   abi_required  of the plugin at most abi_minor offered by the host, and at most its abi_built
//   id, version   non-null, ended by NUL within their stated limit, letters, digits, . _ - + only
//   get_table     non-null; so is deinit
//   reserved      all zero
// A plugin is never refused for being old, from 1.0 on.
#ifndef STRATA_ABI_PLUGIN_H_
#define STRATA_ABI_PLUGIN_H_

#include "strata/abi/types.h"

#ifdef __cplusplus
extern "C" {
#endif

// Version of the contract. 0.x: a draft that may still change, each change with a line in
// docs/ABI.md; frozen as 1.0.
#define STRATA_ABI_MAJOR 0
#define STRATA_ABI_MINOR 1
// The oldest draft whose layouts these headers still speak. Of use while the major version is 0
// only: from 1.0 on a plugin is never refused for being old.
#define STRATA_ABI_OLDEST_DRAFT 1

#define STRATA_HELLO_MAGIC UINT64_C(0x3130564F4C4C4548)   // "HELLOV01"
#define STRATA_PLUGIN_MAGIC UINT64_C(0x31305647554C5053)  // "SPLUGV01"
#define STRATA_PLUGIN_ENTRY_NAME "strata_plugin_entry_v1"
#define STRATA_ID_MAX 64       // longest id, NUL included: letters, digits, '.', '_', '-', '+'
#define STRATA_VERSION_MAX 32  // longest version text, NUL included

// What the host says. Lives until the process ends; `error` is valid during the entry call only.
typedef struct strata_hello {
  uint64_t magic;            // STRATA_HELLO_MAGIC
  uint32_t struct_size;      // sizeof(strata_hello_t)
  uint32_t abi_major;        // STRATA_ABI_MAJOR of the host
  uint32_t abi_minor;        // what the host offers: every minor up to this one
  uint32_t error_size;       // bytes behind `error`, at least 256
  const char* host_id;       // for example "strata"
  const char* host_version;  // for example "0.1.0"
  char* error;  // owned by the host; the plugin writes one sentence ended by NUL when it refuses
  // A table of the host's by id ("strata.host.memory/1"), or NULL if this host has none of that
  // name. Constant for the life of the process. [any thread] [local] [does not block]
  const void* (*get_table)(const char* id);
  uint64_t reserved[4];  // zero
} strata_hello_t;

// What the plugin says. Allocated and zeroed by the host, filled by the entry.
typedef struct strata_plugin {
  uint64_t magic;         // STRATA_PLUGIN_MAGIC
  uint32_t struct_size;   // sizeof(strata_plugin_t)
  uint32_t abi_major;     // STRATA_ABI_MAJOR of the headers it was built with
  uint32_t abi_built;     // STRATA_ABI_MINOR of the headers it was built with
  uint32_t abi_required;  // the smallest minor of a host that it can work with; at most abi_built
  const char* id;         // for example "strata.fsdp"; unique among plugins
  const char* version;    // for example "0.1.0"
  // A table of the plugin's by id ("strata.strategy/1"), or NULL. Constant until deinit.
  // [any thread] [local] [does not block]
  const void* (*get_table)(const char* id);
  // The last call of all, after every object of the plugin is destroyed, in front of closing the
  // library. A host that never closes libraries, as Strata in production, never calls it. [control]
  // [local] [blocks]
  void (*deinit)(void);
  uint64_t reserved[4];  // zero
} strata_plugin_t;

// The one symbol that a plugin exports, under the name STRATA_PLUGIN_ENTRY_NAME.
//
// REQUIRES: both structs as described above; called once per process and library.
// Returns   STRATA_OK                 `plugin` is filled
//           STRATA_E_UNSUPPORTED      this host is too old or of another major version
//           STRATA_E_INVALID_ARGUMENT a field of `host` breaks the rules above
// On error  one sentence is in host->error; the host never calls this library again.
// [control] [local] [does not block]
typedef strata_status_t (*strata_plugin_entry_fn)(const strata_hello_t* host,
                                                  strata_plugin_t* plugin);

#ifdef __cplusplus
}
#endif
#endif  // STRATA_ABI_PLUGIN_H_
