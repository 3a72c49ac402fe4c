// What a run shows at its start and its end.
#ifndef STRATA_TRAIN_TABLES_H_
#define STRATA_TRAIN_TABLES_H_

#include <cstdint>
#include <string>

#include "strata/device/host.h"
#include "strata/model/unit_spec.h"
#include "strata/train/metrics.h"

namespace strata::train {

struct StartTable {
  std::string strategy;     // name and options
  std::string plugin_path;  // where it was loaded from
  std::string message;      // of its resolution, for example that an alias was taken; or ""
  std::string precision;
  int world_size = 1;
  int64_t vocab_size = 0;
  int64_t tokens = 0;          // of the text
  double unigram_entropy = 0;  // in nats
  bool is_tokenizer_trained = false;
  int64_t samples_per_step = 0;
  int64_t steps = 0;
};

// World, strategy and its options, units, precision, bytes per rank at rest (from the host's
// counters), data.
std::string start_table(const StartTable& table, const model::ModelSpec& spec,
                        const device::MemoryStats& memory);

// Loss at the start and the end beside ln(vocabulary) and the unigram entropy; where the files are.
std::string end_table(const Summary& summary, const StartTable& table,
                      const std::string& output_dir);

}  // namespace strata::train

#endif  // STRATA_TRAIN_TABLES_H_
