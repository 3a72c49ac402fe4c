// The optional table "x.strata.aliases/1": names that users know from elsewhere, as a strategy of
// this plugin plus options.
//
// A draft. So that no host knows a strategy by name, the plugin itself says that "full_shard" means
// its strategy "fsdp" with "reshard_after_forward=true". The host says so in a message when a user
// takes an alias; options that the user gives win over those of the alias.
#ifndef STRATA_ABI_ALIASES_H_
#define STRATA_ABI_ALIASES_H_

#include "strata/abi/types.h"

#ifdef __cplusplus
extern "C" {
#endif

#define STRATA_ALIASES_X_1 "x.strata.aliases/1"

typedef struct strata_alias {
  uint32_t struct_size;
  uint32_t reserved;
  const char* alias;     // for example "full_shard"
  const char* strategy;  // one of this plugin's, for example "fsdp"
  const char* options;   // "key=value,key=value", or ""
} strata_alias_t;
#define STRATA_ALIAS_MIN_SIZE STRATA_MIN_SIZE(strata_alias_t, options)

typedef struct strata_aliases_1 {
  uint32_t struct_size;
  uint32_t reserved;
  // The index-th alias; STRATA_E_NOT_FOUND beyond the last. On error *out is unchanged.
  // [control] [local] [does not block]
  strata_status_t (*alias)(uint32_t index, strata_alias_t* out);
} strata_aliases_1_t;

#ifdef __cplusplus
}
#endif
#endif  // STRATA_ABI_ALIASES_H_
