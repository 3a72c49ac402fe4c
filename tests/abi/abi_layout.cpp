#include "tests/abi/abi_layout.h"

#include <cinttypes>
#include <cstddef>
#include <cstdio>
#include <string_view>

#include "strata/abi/aliases.h"
#include "strata/abi/collectives.h"
#include "strata/abi/host.h"
#include "strata/abi/plugin.h"
#include "strata/abi/strategy.h"
#include "strata/abi/types.h"

namespace strata::test {
namespace {

// A type as the compiler spells it, without spaces.
template <typename T>
std::string type_name() {
  const std::string_view text = __PRETTY_FUNCTION__;
  const size_t begin = text.find("T = ") + 4;
  const size_t end = text.find_first_of(";]", begin);
  std::string out;
  for (const char c : text.substr(begin, end - begin)) {
    if (c != ' ') out += c;
  }
  return out;
}

std::string value_text(const char* value) { return '"' + std::string(value) + '"'; }
template <typename T>
std::string value_text(T value) {
  return std::to_string(value);
}

}  // namespace

#define FIELD(field) \
  { #field, offsetof(T, field), sizeof(T::field), type_name < decltype(T::field)>() }

const std::vector<LayoutStruct>& abi_structs() {
  static const std::vector<LayoutStruct> all = [] {
    std::vector<LayoutStruct> out;
    {
      using T = strata_device_t;
      out.push_back({"strata_device_t", sizeof(T), 0, {FIELD(type), FIELD(index)}});
    }
    {
      using T = strata_world_t;
      out.push_back({"strata_world_t",
                     sizeof(T),
                     STRATA_WORLD_MIN_SIZE,
                     {FIELD(struct_size), FIELD(rank), FIELD(size), FIELD(local_rank),
                      FIELD(local_size), FIELD(node), FIELD(node_count), FIELD(reserved)}});
    }
    {
      using T = strata_cpu_queue_t;
      out.push_back({"strata_cpu_queue_t", sizeof(T), 0, {FIELD(enqueue)}});
    }
    {
      using T = strata_option_t;
      out.push_back({"strata_option_t", sizeof(T), 0, {FIELD(key), FIELD(value)}});
    }
    {
      using T = strata_hello_t;
      out.push_back(
          {"strata_hello_t",
           sizeof(T),
           0,
           {FIELD(magic), FIELD(struct_size), FIELD(abi_major), FIELD(abi_minor), FIELD(error_size),
            FIELD(host_id), FIELD(host_version), FIELD(error), FIELD(get_table), FIELD(reserved)}});
    }
    {
      using T = strata_plugin_t;
      out.push_back({"strata_plugin_t",
                     sizeof(T),
                     0,
                     {FIELD(magic), FIELD(struct_size), FIELD(abi_major), FIELD(abi_built),
                      FIELD(abi_required), FIELD(id), FIELD(version), FIELD(get_table),
                      FIELD(deinit), FIELD(reserved)}});
    }
    {
      using T = strata_memory_request_t;
      out.push_back({"strata_memory_request_t",
                     sizeof(T),
                     STRATA_MEMORY_REQUEST_MIN_SIZE,
                     {FIELD(struct_size), FIELD(place), FIELD(tag), FIELD(flags), FIELD(bytes),
                      FIELD(alignment), FIELD(label)}});
    }
    {
      using T = strata_memory_stats_t;
      out.push_back({"strata_memory_stats_t",
                     sizeof(T),
                     STRATA_MEMORY_STATS_MIN_SIZE,
                     {FIELD(struct_size), FIELD(place), FIELD(used), FIELD(peak), FIELD(used_total),
                      FIELD(peak_total), FIELD(limit)}});
    }
    {
      using T = strata_host_memory_1_t;
      out.push_back(
          {"strata_host_memory_1_t",
           sizeof(T),
           0,
           {FIELD(struct_size), FIELD(reserved), FIELD(alloc), FIELD(free), FIELD(stats)}});
    }
    {
      using T = strata_host_streams_1_t;
      out.push_back({"strata_host_streams_1_t",
                     sizeof(T),
                     0,
                     {FIELD(struct_size), FIELD(reserved), FIELD(compute), FIELD(create),
                      FIELD(destroy), FIELD(create_event), FIELD(destroy_event), FIELD(record),
                      FIELD(wait), FIELD(query), FIELD(synchronize)}});
    }
    {
      using T = strata_host_kernels_1_t;
      out.push_back({"strata_host_kernels_1_t",
                     sizeof(T),
                     0,
                     {FIELD(struct_size), FIELD(reserved), FIELD(copy), FIELD(cast), FIELD(add),
                      FIELD(scale), FIELD(zero)}});
    }
    {
      using T = strata_host_store_1_t;
      out.push_back({"strata_host_store_1_t",
                     sizeof(T),
                     0,
                     {FIELD(struct_size), FIELD(reserved), FIELD(set), FIELD(get), FIELD(add)}});
    }
    {
      using T = strata_host_communication_1_t;
      out.push_back({"strata_host_communication_1_t",
                     sizeof(T),
                     0,
                     {FIELD(struct_size), FIELD(reserved), FIELD(library), FIELD(timeout_ms),
                      FIELD(count_sent)}});
    }
    {
      using T = strata_host_log_1_t;
      out.push_back({"strata_host_log_1_t",
                     sizeof(T),
                     0,
                     {FIELD(struct_size), FIELD(reserved), FIELD(log), FIELD(fail)}});
    }
    {
      using T = strata_host_trace_1_t;
      out.push_back({"strata_host_trace_1_t",
                     sizeof(T),
                     0,
                     {FIELD(struct_size), FIELD(reserved), FIELD(begin), FIELD(end)}});
    }
    {
      using T = strata_host_threads_1_t;
      out.push_back({"strata_host_threads_1_t",
                     sizeof(T),
                     0,
                     {FIELD(struct_size), FIELD(reserved), FIELD(parallel_for)}});
    }
    {
      using T = strata_capabilities_t;
      out.push_back({"strata_capabilities_t",
                     sizeof(T),
                     STRATA_CAPABILITIES_MIN_SIZE,
                     {FIELD(struct_size), FIELD(min_world), FIELD(max_world), FIELD(reserved),
                      FIELD(flags), FIELD(devices), FIELD(compute_dtypes), FIELD(reduce_dtypes),
                      FIELD(summary), FIELD(accumulate_dtypes)}});
    }
    {
      using T = strata_option_info_t;
      out.push_back({"strata_option_info_t",
                     sizeof(T),
                     STRATA_OPTION_INFO_MIN_SIZE,
                     {FIELD(struct_size), FIELD(reserved), FIELD(key), FIELD(default_value),
                      FIELD(description)}});
    }
    {
      using T = strata_create_args_t;
      out.push_back({"strata_create_args_t",
                     sizeof(T),
                     STRATA_CREATE_ARGS_MIN_SIZE,
                     {FIELD(struct_size), FIELD(option_count), FIELD(name), FIELD(options),
                      FIELD(world), FIELD(device), FIELD(host)}});
    }
    {
      using T = strata_parameter_t;
      out.push_back({"strata_parameter_t",
                     sizeof(T),
                     STRATA_PARAMETER_MIN_SIZE,
                     {FIELD(struct_size), FIELD(dimensions), FIELD(name), FIELD(shape),
                      FIELD(offset), FIELD(numel), FIELD(trainable), FIELD(reserved)}});
    }
    {
      using T = strata_unit_t;
      out.push_back({"strata_unit_t",
                     sizeof(T),
                     STRATA_UNIT_MIN_SIZE,
                     {FIELD(struct_size), FIELD(parameter_count), FIELD(name), FIELD(parameters),
                      FIELD(numel), FIELD(compute_dtype), FIELD(reduce_dtype), FIELD(entries),
                      FIELD(trainable), FIELD(accumulate_dtype), FIELD(reserved)}});
    }
    {
      using T = strata_layout_t;
      out.push_back({"strata_layout_t",
                     sizeof(T),
                     STRATA_LAYOUT_MIN_SIZE,
                     {FIELD(struct_size), FIELD(reserved), FIELD(parameter_alignment),
                      FIELD(unit_multiple)}});
    }
    {
      using T = strata_model_t;
      out.push_back({"strata_model_t",
                     sizeof(T),
                     STRATA_MODEL_MIN_SIZE,
                     {FIELD(struct_size), FIELD(unit_count), FIELD(units), FIELD(order_count),
                      FIELD(reserved), FIELD(order)}});
    }
    {
      using T = strata_unit_context_t;
      out.push_back({"strata_unit_context_t",
                     sizeof(T),
                     STRATA_UNIT_CONTEXT_MIN_SIZE,
                     {FIELD(struct_size), FIELD(unit), FIELD(phase), FIELD(next_unit),
                      FIELD(micro_batch), FIELD(sync), FIELD(backward_begins_here),
                      FIELD(missing_count), FIELD(missing), FIELD(compute)}});
    }
    {
      using T = strata_unit_view_t;
      out.push_back({"strata_unit_view_t",
                     sizeof(T),
                     STRATA_UNIT_VIEW_MIN_SIZE,
                     {FIELD(struct_size), FIELD(dtype), FIELD(data), FIELD(ready)}});
    }
    {
      using T = strata_gradient_target_t;
      out.push_back({"strata_gradient_target_t",
                     sizeof(T),
                     STRATA_GRADIENT_TARGET_MIN_SIZE,
                     {FIELD(struct_size), FIELD(dtype), FIELD(data), FIELD(mode), FIELD(reserved),
                      FIELD(ready)}});
    }
    {
      using T = strata_partition_t;
      out.push_back(
          {"strata_partition_t",
           sizeof(T),
           STRATA_PARTITION_MIN_SIZE,
           {FIELD(struct_size), FIELD(unit), FIELD(offset), FIELD(numel), FIELD(master),
            FIELD(gradient), FIELD(gradient_dtype), FIELD(place), FIELD(trainable),
            FIELD(master_is_parameter), FIELD(replicas), FIELD(replica), FIELD(gradient_ready)}});
    }
    {
      using T = strata_small_reduction_t;
      out.push_back({"strata_small_reduction_t",
                     sizeof(T),
                     STRATA_SMALL_REDUCTION_MIN_SIZE,
                     {FIELD(struct_size), FIELD(dtype), FIELD(op), FIELD(count), FIELD(values)}});
    }
    {
      using T = strata_estimate_t;
      out.push_back({"strata_estimate_t",
                     sizeof(T),
                     STRATA_ESTIMATE_MIN_SIZE,
                     {FIELD(struct_size), FIELD(reserved), FIELD(param_bytes), FIELD(grad_bytes),
                      FIELD(master_bytes), FIELD(partition_numel), FIELD(gathered_peak_bytes),
                      FIELD(staging_peak_bytes), FIELD(host_bytes), FIELD(sent_bytes_per_step)}});
    }
    {
      using T = strata_strategy_1_t;
      out.push_back({"strata_strategy_1_t",
                     sizeof(T),
                     0,
                     {FIELD(struct_size),
                      FIELD(reserved),
                      FIELD(count),
                      FIELD(name),
                      FIELD(describe),
                      FIELD(option),
                      FIELD(estimate),
                      FIELD(create),
                      FIELD(layout),
                      FIELD(attach),
                      FIELD(open_unit),
                      FIELD(close_unit),
                      FIELD(before_forward),
                      FIELD(after_forward),
                      FIELD(before_backward),
                      FIELD(gradient_target),
                      FIELD(after_backward),
                      FIELD(end_backward),
                      FIELD(partition_count),
                      FIELD(partition),
                      FIELD(before_step),
                      FIELD(after_step),
                      FIELD(all_reduce_small),
                      FIELD(quiesce),
                      FIELD(abort),
                      FIELD(detach),
                      FIELD(destroy)}});
    }
    {
      using T = strata_collective_args_t;
      out.push_back({"strata_collective_args_t",
                     sizeof(T),
                     STRATA_COLLECTIVE_ARGS_MIN_SIZE,
                     {FIELD(struct_size), FIELD(dtype), FIELD(send), FIELD(receive), FIELD(count),
                      FIELD(op), FIELD(root), FIELD(stream)}});
    }
    {
      using T = strata_collectives_1_t;
      out.push_back({"strata_collectives_1_t",
                     sizeof(T),
                     0,
                     {FIELD(struct_size), FIELD(reserved), FIELD(all_reduce), FIELD(all_gather),
                      FIELD(reduce_scatter), FIELD(broadcast), FIELD(barrier)}});
    }
    {
      using T = strata_alias_t;
      out.push_back(
          {"strata_alias_t",
           sizeof(T),
           STRATA_ALIAS_MIN_SIZE,
           {FIELD(struct_size), FIELD(reserved), FIELD(alias), FIELD(strategy), FIELD(options)}});
    }
    {
      using T = strata_aliases_1_t;
      out.push_back({"strata_aliases_1_t",
                     sizeof(T),
                     0,
                     {FIELD(struct_size), FIELD(reserved), FIELD(alias)}});
    }
    return out;
  }();
  return all;
}

#define CONSTANT(name) \
  { #name, value_text(name) }

const std::vector<LayoutConstant>& abi_constants() {
  static const std::vector<LayoutConstant> all = {CONSTANT(STRATA_OK),
                                                  CONSTANT(STRATA_E_INVALID_ARGUMENT),
                                                  CONSTANT(STRATA_E_UNSUPPORTED),
                                                  CONSTANT(STRATA_E_OUT_OF_MEMORY),
                                                  CONSTANT(STRATA_E_TIMEOUT),
                                                  CONSTANT(STRATA_E_ABORTED),
                                                  CONSTANT(STRATA_E_PEER_LOST),
                                                  CONSTANT(STRATA_E_STATE),
                                                  CONSTANT(STRATA_E_IO),
                                                  CONSTANT(STRATA_E_NOT_FOUND),
                                                  CONSTANT(STRATA_E_INTERNAL),
                                                  CONSTANT(STRATA_DTYPE_F32),
                                                  CONSTANT(STRATA_DTYPE_BF16),
                                                  CONSTANT(STRATA_DTYPE_F16),
                                                  CONSTANT(STRATA_DTYPE_F64),
                                                  CONSTANT(STRATA_DTYPE_I64),
                                                  CONSTANT(STRATA_DTYPE_I32),
                                                  CONSTANT(STRATA_DTYPE_U8),
                                                  CONSTANT(STRATA_PLACE_DEVICE),
                                                  CONSTANT(STRATA_PLACE_PINNED),
                                                  CONSTANT(STRATA_PLACE_HOST),
                                                  CONSTANT(STRATA_TAG_PARAMETERS),
                                                  CONSTANT(STRATA_TAG_GRADIENTS),
                                                  CONSTANT(STRATA_TAG_OPTIMIZER),
                                                  CONSTANT(STRATA_TAG_GATHERED),
                                                  CONSTANT(STRATA_TAG_STAGING),
                                                  CONSTANT(STRATA_TAG_ACTIVATIONS),
                                                  CONSTANT(STRATA_TAG_OTHER),
                                                  CONSTANT(STRATA_TAG_COUNT),
                                                  CONSTANT(STRATA_DEVICE_CPU),
                                                  CONSTANT(STRATA_DEVICE_CUDA),
                                                  CONSTANT(STRATA_DEVICE_ROCM),
                                                  CONSTANT(STRATA_NONE),
                                                  CONSTANT(STRATA_ABI_MAJOR),
                                                  CONSTANT(STRATA_ABI_MINOR),
                                                  CONSTANT(STRATA_ABI_OLDEST_DRAFT),
                                                  CONSTANT(STRATA_HELLO_MAGIC),
                                                  CONSTANT(STRATA_PLUGIN_MAGIC),
                                                  CONSTANT(STRATA_PLUGIN_ENTRY_NAME),
                                                  CONSTANT(STRATA_ID_MAX),
                                                  CONSTANT(STRATA_VERSION_MAX),
                                                  CONSTANT(STRATA_HOST_MEMORY_1),
                                                  CONSTANT(STRATA_MEMORY_COLLECTIVE),
                                                  CONSTANT(STRATA_MEMORY_ZEROED),
                                                  CONSTANT(STRATA_HOST_STREAMS_1),
                                                  CONSTANT(STRATA_HOST_KERNELS_1),
                                                  CONSTANT(STRATA_HOST_STORE_1),
                                                  CONSTANT(STRATA_HOST_COMMUNICATION_1),
                                                  CONSTANT(STRATA_HOST_LOG_1),
                                                  CONSTANT(STRATA_LOG_DEBUG),
                                                  CONSTANT(STRATA_LOG_INFO),
                                                  CONSTANT(STRATA_LOG_WARNING),
                                                  CONSTANT(STRATA_LOG_ERROR),
                                                  CONSTANT(STRATA_HOST_TRACE_1),
                                                  CONSTANT(STRATA_HOST_THREADS_1),
                                                  CONSTANT(STRATA_STRATEGY_1),
                                                  CONSTANT(STRATA_CAN_NO_SYNC),
                                                  CONSTANT(STRATA_CAN_SYNC_EACH_BATCH),
                                                  CONSTANT(STRATA_CAN_TIED),
                                                  CONSTANT(STRATA_CAN_FROZEN),
                                                  CONSTANT(STRATA_CAN_UNUSED),
                                                  CONSTANT(STRATA_CAN_RECOMPUTE),
                                                  CONSTANT(STRATA_CAN_INFERENCE),
                                                  CONSTANT(STRATA_REPLICAS_MAY_DIFFER),
                                                  CONSTANT(STRATA_PHASE_FORWARD),
                                                  CONSTANT(STRATA_PHASE_RECOMPUTE),
                                                  CONSTANT(STRATA_PHASE_BACKWARD),
                                                  CONSTANT(STRATA_PHASE_INFERENCE),
                                                  CONSTANT(STRATA_UNIT_KEPT),
                                                  CONSTANT(STRATA_UNIT_RELEASED),
                                                  CONSTANT(STRATA_GRADIENT_WRITE),
                                                  CONSTANT(STRATA_GRADIENT_ADD),
                                                  CONSTANT(STRATA_REDUCE_SUM),
                                                  CONSTANT(STRATA_REDUCE_MIN),
                                                  CONSTANT(STRATA_REDUCE_MAX),
                                                  CONSTANT(STRATA_INTENT_READ),
                                                  CONSTANT(STRATA_INTENT_WRITE),
                                                  CONSTANT(STRATA_COLLECTIVES_1),
                                                  CONSTANT(STRATA_ALIASES_X_1)};
  return all;
}

std::string abi_text() {
  std::string out =
      "# The layout of core/abi, compared by the test AbiLock. A change is made on purpose: write\n"
      "# it with `contract_test --write`, and say it in docs/ABI.md.\n";
  for (const LayoutConstant& constant : abi_constants()) {
    out += "constant " + constant.name + " " + constant.value + "\n";
  }
  for (const LayoutStruct& type : abi_structs()) {
    out += "struct " + type.name + " size " + std::to_string(type.size);
    if (type.min_size != 0) out += " min " + std::to_string(type.min_size);
    out += "\n";
    for (const LayoutField& field : type.fields) {
      out += "  " + std::to_string(field.offset) + " " + std::to_string(field.size) + " " +
             field.name + " " + field.type + "\n";
    }
  }
  return out;
}

}  // namespace strata::test
