/* A plugin in C99 that sees nothing but core/abi: one rank, one strategy, all memory at rest. It
 * proves that the contract can be kept without C++ or the SDK. With -DFAULT_X=1 it breaks one rule
 * of the handshake. */
#include <stdio.h>
#include <string.h>

#include "strata/abi/host.h"
#include "strata/abi/plugin.h"
#include "strata/abi/strategy.h"

#define EXPORT __attribute__((visibility("default")))

/* How often the host has called anything, for tests of "never called again". */
EXPORT int plain_c_calls = 0;

static const strata_host_memory_1_t* memory_table;
static const strata_host_log_1_t* log_table;

typedef struct {
  uint64_t numel;
  int32_t trainable;
  void* master;
  void* gradient;
} unit_t;

struct strata_strategy {
  strata_host_t* host;
  unit_t* units;
  uint32_t count;
};

static strata_status_t fail(strata_host_t* host, strata_status_t status, const char* text) {
  log_table->fail(host, status, text);
  return status;
}

static strata_status_t alloc(strata_host_t* host, int32_t tag, uint64_t bytes, const char* label,
                             void** out) {
  strata_memory_request_t request;
  memset(&request, 0, sizeof(request));
  request.struct_size = sizeof(request);
  request.place = STRATA_PLACE_DEVICE;
  request.tag = tag;
  request.flags = STRATA_MEMORY_ZEROED;
  request.bytes = bytes;
  request.label = label;
  return memory_table->alloc(host, &request, out);
}

/* Copies as much as the caller has; its struct_size stays. */
static void answer(void* out, const void* from, size_t size) {
  uint32_t caller_size;
  memcpy(&caller_size, out, sizeof(caller_size));
  memcpy(out, from, caller_size < size ? caller_size : size);
  memcpy(out, &caller_size, sizeof(caller_size));
}

/* ---- without an instance ---- */

static uint32_t count(void) {
  ++plain_c_calls;
#if FAULT_NO_STRATEGIES
  return 0;
#elif FAULT_SAME_NAMES
  return 2;
#else
  return 1;
#endif
}

static const char* name(uint32_t index) {
#if FAULT_BAD_NAME
  return index == 0 ? "plain c" : NULL;
#elif FAULT_NAME_BEHIND_LAST
  return index <= 1 ? "plain_c" : NULL;
#else
  return index < count() ? "plain_c" : NULL;
#endif
}

static strata_status_t describe(const char* which, strata_capabilities_t* out) {
  strata_capabilities_t can;
#if FAULT_NO_DESCRIPTION
  return fail(NULL, STRATA_E_NOT_FOUND, "plain_c: it does not know itself");
#endif
  if (strcmp(which, "plain_c") != 0) return fail(NULL, STRATA_E_NOT_FOUND, "plain_c: no such name");
  memset(&can, 0, sizeof(can));
  can.min_world = 1;
  can.max_world = 1;
  can.flags = STRATA_CAN_NO_SYNC | STRATA_CAN_TIED | STRATA_CAN_FROZEN | STRATA_CAN_RECOMPUTE |
              STRATA_CAN_INFERENCE;
#if !FAULT_NO_DEVICE
  can.devices = STRATA_DEVICE_BIT(STRATA_DEVICE_CPU);
#endif
  can.compute_dtypes = STRATA_DTYPE_BIT(STRATA_DTYPE_F32);
  can.reduce_dtypes = STRATA_DTYPE_BIT(STRATA_DTYPE_F32);
  can.summary = "one rank, written in C";
  answer(out, &can, sizeof(can));
  return STRATA_OK;
}

static strata_status_t option(const char* which, uint32_t index, strata_option_info_t* out) {
  (void)which, (void)index, (void)out;
  return fail(NULL, STRATA_E_NOT_FOUND, "plain_c: it has no options");
}

static strata_status_t estimate(const strata_create_args_t* args, const strata_model_t* model,
                                strata_estimate_t* out) {
  const char* at = (const char*)model->units;
  strata_estimate_t sum;
  uint32_t u;
  (void)args;
  memset(&sum, 0, sizeof(sum));
  for (u = 0; u < model->unit_count; ++u, at += model->units->struct_size) {
    const strata_unit_t* unit = (const strata_unit_t*)at;
    sum.param_bytes += 4 * unit->numel;
    if (unit->trainable) sum.grad_bytes += 4 * unit->numel;
    if (unit->trainable) sum.partition_numel += unit->numel;
  }
  answer(out, &sum, sizeof(sum));
  return STRATA_OK;
}

/* ---- life ---- */

static strata_status_t create(const strata_create_args_t* args, strata_strategy_t** out) {
  void* memory = NULL;
  strata_status_t status;
  *out = NULL;
  if (args->option_count > 0) {
    return fail(args->host, STRATA_E_INVALID_ARGUMENT,
                "plain_c: it has no options. HINT: take them away");
  }
  status = alloc(args->host, STRATA_TAG_OTHER, sizeof(strata_strategy_t), "plain_c", &memory);
  if (status != STRATA_OK) return status;
  *out = (strata_strategy_t*)memory;
  (*out)->host = args->host;
  return STRATA_OK;
}

static strata_status_t layout(strata_strategy_t* self, const strata_unit_t* unit,
                              strata_layout_t* out) {
  strata_layout_t wanted;
  (void)self, (void)unit;
  memset(&wanted, 0, sizeof(wanted));
  wanted.parameter_alignment = 64;
  wanted.unit_multiple = 64;
  answer(out, &wanted, sizeof(wanted));
  return STRATA_OK;
}

static strata_status_t detach(strata_strategy_t* self) {
  uint32_t u;
  for (u = 0; u < self->count; ++u) {
    memory_table->free(self->host, self->units[u].master);
    memory_table->free(self->host, self->units[u].gradient);
  }
  memory_table->free(self->host, self->units);
  self->units = NULL;
  self->count = 0;
  return STRATA_OK;
}

static strata_status_t attach(strata_strategy_t* self, const strata_model_t* model) {
  const char* at = (const char*)model->units;
  void* memory = NULL;
  uint32_t u;
  strata_status_t status = alloc(self->host, STRATA_TAG_OTHER, model->unit_count * sizeof(unit_t),
                                 "plain_c units", &memory);
  if (status != STRATA_OK) return status;
  self->units = (unit_t*)memory;
  self->count = model->unit_count;
  for (u = 0; u < model->unit_count && status == STRATA_OK; ++u, at += model->units->struct_size) {
    const strata_unit_t* from = (const strata_unit_t*)at;
    unit_t* unit = &self->units[u];
    unit->numel = from->numel;
    unit->trainable = from->trainable != 0;
    status =
        alloc(self->host, STRATA_TAG_PARAMETERS, 4 * unit->numel, from->name, &unit->master);
    if (status == STRATA_OK && unit->trainable) {
      status =
          alloc(self->host, STRATA_TAG_GRADIENTS, 4 * unit->numel, from->name, &unit->gradient);
    }
  }
  if (status != STRATA_OK) detach(self);
  return status;
}

static void view_of(const strata_strategy_t* self, uint32_t unit, strata_unit_view_t* out) {
  strata_unit_view_t view;
  memset(&view, 0, sizeof(view));
  view.dtype = STRATA_DTYPE_F32;
  view.data = self->units[unit].master;
  answer(out, &view, sizeof(view));
}

static strata_status_t open_unit(strata_strategy_t* self, uint32_t unit, int32_t intent,
                                 strata_unit_view_t* out) {
  (void)intent;
  view_of(self, unit, out);
  return STRATA_OK;
}

static strata_status_t close_unit(strata_strategy_t* self, uint32_t unit) {
  (void)self, (void)unit;
  return STRATA_OK;
}

/* ---- one micro-batch ---- */

static strata_status_t before_pass(strata_strategy_t* self, const strata_unit_context_t* context,
                                   strata_unit_view_t* out) {
  view_of(self, context->unit, out);
  return STRATA_OK;
}

static strata_status_t after_pass(strata_strategy_t* self, const strata_unit_context_t* context,
                                  int32_t* residency) {
  (void)self, (void)context;
  *residency = STRATA_UNIT_KEPT;
  return STRATA_OK;
}

static strata_status_t gradient_target(strata_strategy_t* self,
                                       const strata_unit_context_t* context,
                                       strata_gradient_target_t* out) {
  strata_gradient_target_t target;
  memset(&target, 0, sizeof(target));
  target.dtype = STRATA_DTYPE_F32;
  target.data = self->units[context->unit].gradient;
  target.mode = context->micro_batch == 0 ? STRATA_GRADIENT_WRITE : STRATA_GRADIENT_ADD;
  answer(out, &target, sizeof(target));
  return STRATA_OK;
}

static strata_status_t end_backward(strata_strategy_t* self, int32_t sync) {
  (void)self, (void)sync;
  return STRATA_OK;
}

/* ---- the step ---- */

static uint32_t partition_count(strata_strategy_t* self) {
  uint32_t u, partitions = 0;
  for (u = 0; u < self->count; ++u) partitions += self->units[u].numel > 0;
  return partitions;
}

static strata_status_t partition(strata_strategy_t* self, uint32_t index,
                                 strata_partition_t* out) {
  uint32_t u;
  for (u = 0; u < self->count; ++u) {
    const unit_t* unit = &self->units[u];
    strata_partition_t p;
    if (unit->numel == 0) continue;
    if (index-- > 0) continue;
    memset(&p, 0, sizeof(p));
    p.unit = u;
    p.numel = unit->numel;
    p.master = unit->master;
    p.gradient = unit->gradient;
    p.gradient_dtype = STRATA_DTYPE_F32;
    p.place = STRATA_PLACE_DEVICE;
    p.trainable = unit->trainable;
    p.master_is_parameter = 1;
    p.replicas = 1;
    answer(out, &p, sizeof(p));
    return STRATA_OK;
  }
  return fail(self->host, STRATA_E_INVALID_ARGUMENT, "plain_c: no such partition");
}

static strata_status_t nothing(strata_strategy_t* self) {
  (void)self;
  return STRATA_OK;
}

static strata_status_t after_step(strata_strategy_t* self, int32_t updated) {
  (void)self, (void)updated;
  return STRATA_OK;
}

static strata_status_t all_reduce_small(strata_strategy_t* self,
                                        const strata_small_reduction_t* reduction) {
  (void)self, (void)reduction; /* one rank: its numbers are the sum, the least and the largest */
  return STRATA_OK;
}

static void abort_nothing(strata_strategy_t* self, const char* reason) { (void)self, (void)reason; }

static void destroy(strata_strategy_t* self) {
  if (self == NULL) return;
  detach(self);
  memory_table->free(self->host, self);
}

static const strata_strategy_1_t strategy_table = {
#if FAULT_SMALL_TABLE
    sizeof(strata_strategy_1_t) - sizeof(void*),
#else
    sizeof(strata_strategy_1_t),
#endif
#if FAULT_TABLE_RESERVED
    7,
#else
    0,
#endif
    count, name, describe, option, estimate, create, layout, attach, open_unit, close_unit,
    before_pass, after_pass, before_pass, gradient_target, after_pass, end_backward,
    partition_count, partition, nothing, after_step, all_reduce_small, nothing,
#if FAULT_NULL_SLOT
    NULL,
#else
    abort_nothing,
#endif
    detach, destroy};

/* ---- the handshake ---- */

static const void* get_table(const char* id) {
  ++plain_c_calls;
#if FAULT_NO_TABLE
  return NULL;
#endif
  return strcmp(id, STRATA_STRATEGY_1) == 0 ? &strategy_table : NULL;
}

#if FAULT_UNDEFINED
void a_symbol_of_nobody(void);
static void deinit(void) { a_symbol_of_nobody(); }
#else
static void deinit(void) { ++plain_c_calls; }
#endif

#if !FAULT_NO_ENTRY
EXPORT strata_status_t strata_plugin_entry_v1(const strata_hello_t* host, strata_plugin_t* plugin);

EXPORT strata_status_t strata_plugin_entry_v1(const strata_hello_t* host,
                                              strata_plugin_t* plugin) {
  ++plain_c_calls;
  if (host->magic != STRATA_HELLO_MAGIC || host->struct_size != sizeof(strata_hello_t)) {
    return STRATA_E_INVALID_ARGUMENT;
  }
#if FAULT_REFUSES
  snprintf(host->error, host->error_size, "plain_c: it works on Sundays only");
  return STRATA_E_UNSUPPORTED;
#elif FAULT_REFUSES_SILENTLY
  return STRATA_E_UNSUPPORTED;
#elif FAULT_LONG_TEXT
  memset(host->error, 'x', host->error_size + 1);
  return STRATA_E_UNSUPPORTED;
#endif
  memory_table = (const strata_host_memory_1_t*)host->get_table(STRATA_HOST_MEMORY_1);
  log_table = (const strata_host_log_1_t*)host->get_table(STRATA_HOST_LOG_1);
  if (memory_table == NULL || log_table == NULL) {
    snprintf(host->error, host->error_size, "plain_c: the host has no memory or no log");
    return STRATA_E_UNSUPPORTED;
  }
  plugin->magic = STRATA_PLUGIN_MAGIC;
  plugin->struct_size = sizeof(strata_plugin_t);
  plugin->abi_major = STRATA_ABI_MAJOR;
  plugin->abi_built = STRATA_ABI_MINOR;
  plugin->abi_required = 1;
#ifdef PLUGIN_ID
  plugin->id = PLUGIN_ID;
#else
  plugin->id = "strata.test.plain_c";
#endif
  plugin->version = "0.1.0";
  plugin->get_table = get_table;
  plugin->deinit = deinit;
#if FAULT_MAGIC
  plugin->magic ^= 1;
#elif FAULT_SIZE
  plugin->struct_size += 8;
#elif FAULT_MAJOR
  plugin->abi_major = STRATA_ABI_MAJOR + 1;
#elif FAULT_REQUIRES_NEWER
  plugin->abi_built = plugin->abi_required = STRATA_ABI_MINOR + 1;
#elif FAULT_REQUIRES_MORE_THAN_BUILT
  plugin->abi_built = 0;
#elif FAULT_RESERVED
  plugin->reserved[2] = 9;
#elif FAULT_NULL_ID
  plugin->id = NULL;
#elif FAULT_EMPTY_ID
  plugin->id = "";
#elif FAULT_LONG_ID
  plugin->id = "a23456789.123456789.123456789.123456789.123456789.123456789.1234";
#elif FAULT_STRANGE_ID
  plugin->id = "plain\nc";
#elif FAULT_NULL_VERSION
  plugin->version = NULL;
#elif FAULT_LONG_VERSION
  plugin->version = "1.0.0-123456789.123456789.123456";
#elif FAULT_NULL_GET_TABLE
  plugin->get_table = NULL;
#elif FAULT_NULL_DEINIT
  plugin->deinit = NULL;
#elif FAULT_PAST_PLUGIN
  memset(plugin + 1, 1, 8);
#endif
  return STRATA_OK;
}
#endif
