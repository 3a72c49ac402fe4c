#include "strata/sdk/membership.h"

#include "strata/sdk/slices.h"

namespace strata::sdk {

ModelTable Membership::join(const strata_model_t& model, const std::string& options) {
  group_.emplace(config_, abort_);
  ModelTable table;
  group_->together([&] {
    table = ModelTable(model, kAlignment * world());
    table.require_dtypes();
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

}  // namespace strata::sdk
