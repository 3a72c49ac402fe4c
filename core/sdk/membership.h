// A strategy's way into its group of ranks and out of it again: what attach(), quiesce(), abort()
// and detach() have in common, whatever a strategy does with memory.
#ifndef STRATA_SDK_MEMBERSHIP_H_
#define STRATA_SDK_MEMBERSHIP_H_

#include <optional>
#include <string>
#include <utility>

#include "strata/sdk/model_table.h"
#include "strata/sdk/rank_group.h"

namespace strata::sdk {

// Declare it behind all memory that collectives use, so that it ends first.
class Membership {
 public:
  // `name` is for the communicator and for messages, for example "fsdp". With `overlaps`
  // collectives run on a stream of their own.
  Membership(const strata_create_args_t& args, std::string name, bool overlaps)
      : config_(args, std::move(name), overlaps) {}

  const std::string& name() const { return config_.name; }
  uint32_t rank() const { return config_.rank; }
  uint32_t world() const { return config_.size; }
  bool is_alone() const { return world() == 1; }

  // Meets the other ranks and returns the model. Throws on every rank, if on any the model has
  // a dtype that is not kTrainedDtypes or is not laid out as sliced_layout() asks, or if they
  // differ in it or in `options` (lines "option KEY VALUE"); leave() is for the caller then.
  // [collective] [blocks]
  ModelTable join(const strata_model_t& model, const std::string& options);
  // Throws STRATA_E_STATE before join() and behind leave().
  RankGroup& group();
  // Ends the group, if there is one, and what still runs in it. Communicates with nobody.
  void leave() { group_.reset(); }

  // The slots of these names.
  void quiesce();
  void abort(const char* reason) noexcept { abort_.trip(reason); }
  // Null while there is none.
  Communicator* communicator();

 private:
  RankGroupConfig config_;
  AbortSwitch abort_;
  std::optional<RankGroup> group_;
};

}  // namespace strata::sdk

#endif  // STRATA_SDK_MEMBERSHIP_H_
