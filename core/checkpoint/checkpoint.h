// Sharded checkpoints: who owns which slice, on disk. docs/CHECKPOINT_FORMAT.md has the format.
//
//   OUTPUT_DIR/checkpoint-500/
//     manifest.json                 format, step, world, units with their layouts, what the trainer
//     adds rank-00000.safetensors        the slices that rank 0 owned: "UNIT@OFFSET/KIND", fp32,
//     one dimension config.json, tokenizer files  so that the folder can be used alone
//   OUTPUT_DIR/latest               a link to the newest complete one
//
// A checkpoint is complete or absent: files are written in "checkpoint-500.part", which gets its
// name when all ranks are done. Kinds are "master" and the optimizer's own ("exp_avg",
// "exp_avg_sq"). Slices are read by unit coordinates, so a run may continue under another strategy
// or world size.
#ifndef STRATA_CHECKPOINT_CHECKPOINT_H_
#define STRATA_CHECKPOINT_CHECKPOINT_H_

#include <cstdint>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "strata/base/status.h"
#include "strata/formats/safetensors.h"
#include "strata/model/unit_spec.h"

namespace strata::checkpoint {

// One tensor to save: elements [offset, offset + numel) of a unit's flat buffer. Memory is
// borrowed.
struct OwnedSlice {
  std::string unit;  // its name
  int64_t offset = 0;
  int64_t numel = 0;
  std::string kind;  // for example "master"
  const float* data = nullptr;
};

// The folder of a step, and the one in which it is written.
std::string folder_of(const std::string& output_dir, int64_t step);
std::string part_folder_of(const std::string& output_dir, int64_t step);

// Writes this rank's file into an existing folder. On error the file is not there. [local]
Status write_rank_file(const std::string& folder, int rank, const std::vector<OwnedSlice>& slices);

// Rank 0, once every rank has written: the manifest ("state" is the trainer's), the rename, the
// link. A checkpoint of this step that was there is replaced at once: a kill leaves it or the new
// one. `keep` > 0 deletes all but the newest `keep` complete checkpoints up to this step. [local]
Status commit(const std::string& output_dir, int64_t step, int world_size,
              const model::ModelSpec& spec, const std::vector<model::FlatLayout>& layouts,
              const nlohmann::json& state, int keep);

// Rank 0, if any rank failed: removes what was written. [local]
void discard(const std::string& output_dir, int64_t step);

// Rank 0, before it writes into a folder that no other run writes to: removes what runs that were
// killed while saving have left. [local]
void discard_unfinished(const std::string& output_dir);

class Reader {
 public:
  // `folder` is a checkpoint or a link to one. Reads the manifest and the heads of all rank files;
  // gaps in what they hold are errors that name unit, range and file.
  static Result<Reader> open(const std::string& folder);

  int64_t step() const { return step_; }
  int world_size() const { return world_size_; }
  const nlohmann::json& state() const { return state_; }
  const std::string& folder() const { return folder_; }

  // Checks that units, names, shapes and offsets are those of the model that is to be filled.
  Status check_model(const model::ModelSpec& spec,
                     const std::vector<model::FlatLayout>& layouts) const;
  // Copies elements [offset, offset + numel) of a unit; elements beyond the saved buffer (other
  // padding) are zero.
  Status read(const std::string& unit, const std::string& kind, int64_t offset, int64_t numel,
              float* out) const;
  bool has_kind(const std::string& unit, const std::string& kind) const;

 private:
  struct Piece {
    int64_t offset = 0;
    int64_t numel = 0;
    size_t file = 0;
    std::string tensor;
  };

  Status read_manifest();
  Status index_files();

  std::string folder_;
  int64_t step_ = 0;
  int world_size_ = 0;
  nlohmann::json manifest_;
  nlohmann::json state_;
  std::map<std::string, int64_t> numel_;  // of each unit as saved, padding included
  std::vector<std::shared_ptr<formats::SafetensorsFile>> files_;
  // By unit, then kind: pieces by rising offset.
  std::map<std::string, std::map<std::string, std::vector<Piece>>> pieces_;
};

}  // namespace strata::checkpoint

#endif  // STRATA_CHECKPOINT_CHECKPOINT_H_
