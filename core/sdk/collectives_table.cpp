// "strata.collectives/1" over Strategy::communicator(). With one rank and no communicator, a
// collective is a copy.
#include <string>

#include "strata/sdk/communicator.h"
#include "strata/sdk/grown_struct.h"
#include "strata/sdk/strategy_instance.h"
#include "strata/sdk/strategy_table.h"

namespace strata::sdk {
namespace {

uint64_t dtype_size(int32_t dtype) {
  switch (dtype) {
    case STRATA_DTYPE_F64:
    case STRATA_DTYPE_I64: return 8;
    case STRATA_DTYPE_F32:
    case STRATA_DTYPE_I32: return 4;
    case STRATA_DTYPE_BF16:
    case STRATA_DTYPE_F16: return 2;
    case STRATA_DTYPE_U8: return 1;
    default: throw Error(STRATA_E_INVALID_ARGUMENT, "dtype " + std::to_string(dtype));
  }
}

template <typename Collective>
strata_status_t run(strata_strategy_t* self, const strata_collective_args_t* from,
                    Collective&& collective) {
  return fence(self, [&](Strategy& strategy) {
    const strata_collective_args_t args =
        read_struct(from, STRATA_COLLECTIVE_ARGS_MIN_SIZE, "collective_args");
    const uint64_t bytes = args.count * dtype_size(args.dtype);
    if (bytes == 0) return;
    if (args.send == nullptr || args.receive == nullptr) {
      throw Error(STRATA_E_INVALID_ARGUMENT, "collective_args has a NULL buffer");
    }
    if (Communicator* communicator = strategy.communicator()) {
      collective(*communicator, args);
    } else if (self->world_size == 1) {
      if (args.send == args.receive) return;
      check(services().kernels->copy(self->host, args.stream, args.receive, args.send, bytes),
            "copying for a collective of one rank");
    } else {
      throw Error(STRATA_E_STATE, "has no communicator before attach. HINT: attach a model first");
    }
  });
}

strata_status_t all_reduce(strata_strategy_t* self, const strata_collective_args_t* args) {
  return run(self, args, [](Communicator& over, const strata_collective_args_t& a) {
    over.all_reduce(a.send, a.receive, a.count, a.dtype, a.op, a.stream);
  });
}

strata_status_t all_gather(strata_strategy_t* self, const strata_collective_args_t* args) {
  return run(self, args, [](Communicator& over, const strata_collective_args_t& a) {
    over.all_gather(a.send, a.receive, a.count, a.dtype, a.stream);
  });
}

strata_status_t reduce_scatter(strata_strategy_t* self, const strata_collective_args_t* args) {
  return run(self, args, [](Communicator& over, const strata_collective_args_t& a) {
    over.reduce_scatter(a.send, a.receive, a.count, a.dtype, a.stream);
  });
}

strata_status_t broadcast(strata_strategy_t* self, const strata_collective_args_t* args) {
  return run(self, args, [self](Communicator& over, const strata_collective_args_t& a) {
    if (a.root >= self->world_size) {
      throw Error(STRATA_E_INVALID_ARGUMENT, "root " + std::to_string(a.root) + " in a world of " +
                                                 std::to_string(self->world_size));
    }
    over.broadcast(a.send, a.receive, a.count, a.dtype, a.root, a.stream);
  });
}

// One number summed over all ranks. Its memory stays until destroy(): behind a time-out the
// collective may still be writing.
strata_status_t barrier(strata_strategy_t* self) {
  return fence(self, [&](Strategy& strategy) {
    Communicator* communicator = strategy.communicator();
    if (communicator == nullptr && self->world_size == 1) return;
    if (communicator == nullptr) {
      throw Error(STRATA_E_STATE, "has no communicator before attach. HINT: attach a model first");
    }
    if (self->barrier_memory.data() == nullptr) {
      self->barrier_memory =
          Buffer(self->host, STRATA_PLACE_DEVICE, STRATA_TAG_OTHER, 256,
                 STRATA_MEMORY_COLLECTIVE | STRATA_MEMORY_ZEROED, "the barrier's number");
    }
    const strata_stream_t stream = services().streams->compute(self->host);
    communicator->all_reduce(self->barrier_memory.data(), self->barrier_memory.data(), 1,
                             STRATA_DTYPE_I32, STRATA_REDUCE_SUM, stream);
    Event done(self->host);
    done.record(stream);
    done.synchronize("the barrier");
    communicator->check_async_error();
  });
}

}  // namespace

const strata_collectives_1_t& collectives_table() {
  static constexpr strata_collectives_1_t table = {sizeof(strata_collectives_1_t),
                                                   0,
                                                   all_reduce,
                                                   all_gather,
                                                   reduce_scatter,
                                                   broadcast,
                                                   barrier};
  return table;
}

}  // namespace strata::sdk
