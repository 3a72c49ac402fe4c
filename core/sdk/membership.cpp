#include "strata/sdk/membership.h"

#include "strata/sdk/slices.h"

namespace strata::sdk {

ModelTable Membership::join(const strata_model_t& model, const std::string& options) {
  group_.emplace(config_, abort_);
  ModelTable table;
  group_->together([&] {
    table = ModelTable(model, kAlignment * world());
    table.require_dtype(STRATA_DTYPE_F32);
  });
  group_->agree(table.text() + options);
  return table;
}

RankGroup& Membership::group() {
  if (group_.has_value()) return *group_;
  throw Error(STRATA_E_STATE, "no model is attached. HINT: attach one first");
}

void Membership::quiesce() {
  if (group_.has_value()) group_->synchronize((name() + "/quiesce").c_str());
}

Communicator* Membership::communicator() {
  return group_.has_value() ? group_->communicator_or_null() : nullptr;
}

void OpenedUnit::require_none(const ModelTable& model) const {
  if (unit_ == STRATA_NONE) return;
  throw Error(STRATA_E_STATE,
              "unit '" + model.unit(unit_).name + "' is still open. HINT: close_unit comes first");
}

void OpenedUnit::require(uint32_t unit) const {
  if (unit != STRATA_NONE && unit == unit_) return;
  throw Error(STRATA_E_STATE, "unit " + std::to_string(unit) + " is not open");
}

}  // namespace strata::sdk
