// The unit that open_unit() has opened: at most one.
#ifndef STRATA_SDK_OPENED_UNIT_H_
#define STRATA_SDK_OPENED_UNIT_H_

#include <cstdint>

#include "strata/sdk/host.h"
#include "strata/sdk/model_table.h"

namespace strata::sdk {

class OpenedUnit {
 public:
  // Throws STRATA_E_STATE, naming it, if one is open.
  void require_none(const ModelTable& model) const;
  void set(uint32_t unit, int32_t intent);
  // Throws STRATA_E_STATE if it is not this one.
  void require(uint32_t unit) const;
  bool is_written() const { return intent_ == STRATA_INTENT_WRITE; }
  // No unit is open; its memory is freed.
  void clear();

  // Room for the whole unit in fp32, until clear() or the next one: for strategies that keep no
  // whole masters. It stays if what fills it fails, since that may still run.
  float* allocate(strata_host_t* host, uint64_t numel);
  const float* memory() const { return memory_.floats(); }

 private:
  uint32_t unit_ = STRATA_NONE;
  int32_t intent_ = STRATA_INTENT_READ;
  Buffer memory_;
};

}  // namespace strata::sdk

#endif  // STRATA_SDK_OPENED_UNIT_H_
