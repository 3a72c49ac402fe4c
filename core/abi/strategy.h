// The table "strata.strategy/1": how a host trains a model whose bytes a plugin places.
//
// Words. A *unit* is a list of parameters that are gathered, computed with and freed together; its
// parameters lie one behind the other in one flat buffer. A *slice* is a contiguous range of that
// buffer; a *partition* is a slice that this rank owns and updates, with its fp32 master and its
// gradient. A *window* is the micro-batches whose gradients one step takes together.
//
// The life of a strategy, and the states in the tags below:
//
//   create -> [created] -> layout(unit)... -> attach(model) -> [between-steps]
//
//     open_unit, close_unit                    initialise, load, save: one unit at a time
//
//     per micro-batch:
//       before_forward(u) after_forward(u)     [in-forward], units in the declared order
//       before_backward(u) gradient_target(u) after_backward(u)
//                                              [in-backward], the reverse order; with activation
//                                              checkpointing, before_forward(u) after_forward(u)
//                                              in phase RECOMPUTE in front of each
//       end_backward(sync)                     -> [between-steps]
//
//     per forward without backward: before_forward(u) after_forward(u) in phase INFERENCE
//
//     per step: partitions are read, before_step, the host updates masters, after_step(updated)
//
//   quiesce -> detach -> [created] -> destroy
//
// Order. Each unit begins once per forward, at its first entry in the declared order, and ends
// behind its last one. In backward it begins at its last entry and ends behind its first one. So
// for the order 0 1 2 0 (a head tied to the embeddings in unit 0), forward is
//   before 0, before 1, after 1, before 2, after 2, after 0
// and backward
//   before 0, before 2, after 2, before 1, after 1, after 0.
// A frozen unit in front of everything that is trained has no backward: none of its three slots
// is called there. When one unit follows another at once, the next may begin before the last ends.
//
// Every rank makes the same sequence of calls whatever its data; a rank that cannot go on calls
// abort(). All slots but abort() are called by one thread per instance (the *step* thread), never
// concurrently. Several instances may live in one process, one per rank or model.
//
// Gradients are sums: nobody divides. The host applies one fp32 factor (1 / label tokens of the
// whole window, all micro-batches and ranks, times 1 / loss scale) where its optimizer reads
// gradients.
//
// Dtypes. Each unit has three, which may differ from each other and from unit to unit:
//   compute_dtype     the whole unit, as the model computes with it, at rest and on the wire
//   accumulate_dtype  gradients on this rank: targets, kept sums, the gradients of partitions
//   reduce_dtype      gradients on the wire
// Masters are F32 always. Where compute_dtype is F32 a master may be the parameter memory itself;
// where it is BF16 or F16 masters are memory of the plugin's (STRATA_TAG_OPTIMIZER), and
// after_step() rounds them into the parameters, to nearest even. A gradient is cast, to nearest
// even, where one dtype follows another and nowhere else:
//   target (accumulate)  ->  on the wire (reduce)  ->  sum over ranks (reduce)  ->  partition
//   (accumulate)
// A rank that is alone sends nothing, and so casts nothing. The sum over ranks runs in rank order,
// in F32 if the dtype has 16 bits, and is rounded once. With reduction in every micro-batch later
// sums are added, in accumulate_dtype, to the partition. So strategies with one order of additions
// agree to the last bit in these dtypes too. Infinity and NaN pass through all of it: whether a
// step is skipped is for the host to say.
//
// Memory. Whole units, gradient targets, masters and gradients of partitions begin at a multiple
// of 64 bytes; partitions begin and end at multiples of 64 elements.
//
// A failing call. What was already queued may still run. Behind STRATA_E_TIMEOUT,
// STRATA_E_PEER_LOST and STRATA_E_ABORTED, and behind any failure of a slot of a micro-batch, only
// abort() and destroy() are legal.
//
// Tags. Thread role: [control] outside of steps, [step] inside one, [any]. [collective]: every
// rank, in the same order; a rank that skips such a call hangs the job. [local]: no other rank is
// involved. [blocks]: may wait for other ranks or the device, under the host's deadline.
#ifndef STRATA_ABI_STRATEGY_H_
#define STRATA_ABI_STRATEGY_H_

#include "strata/abi/host.h"
#include "strata/abi/types.h"

#ifdef __cplusplus
extern "C" {
#endif

#define STRATA_STRATEGY_1 "strata.strategy/1"

// One strategy at work on one rank. Opaque.
typedef struct strata_strategy strata_strategy_t;

// ---- what a strategy can do ---------------------------------------------------------------------

// end_backward(0) keeps gradients of earlier micro-batches, without communication.
#define STRATA_CAN_NO_SYNC UINT64_C(1)
// end_backward(0) is legal; gradients are reduced in every micro-batch and added up.
#define STRATA_CAN_SYNC_EACH_BATCH UINT64_C(2)
// Units that are entered more than once a micro-batch.
#define STRATA_CAN_TIED UINT64_C(4)
// Units and parameters that are not trained.
#define STRATA_CAN_FROZEN UINT64_C(8)
// Trainable parameters that get no gradient in a backward.
#define STRATA_CAN_UNUSED UINT64_C(16)
// Forward of a unit inside backward (activation checkpointing).
#define STRATA_CAN_RECOMPUTE UINT64_C(32)
// Forward without backward.
#define STRATA_CAN_INFERENCE UINT64_C(64)
// Copies on several ranks are equal only at synchronisations (Local SGD).
#define STRATA_REPLICAS_MAY_DIFFER UINT64_C(128)

typedef struct strata_capabilities {
  uint32_t struct_size;
  uint32_t min_world;  // fewest ranks, at least 1
  uint32_t max_world;  // most ranks; 0: no limit
  uint32_t reserved;
  uint64_t flags;           // STRATA_CAN_*, STRATA_REPLICAS_MAY_DIFFER
  uint64_t devices;         // STRATA_DEVICE_BIT(type) | ...
  uint64_t compute_dtypes;  // STRATA_DTYPE_BIT(dtype) | ...
  uint64_t reduce_dtypes;   // likewise, for gradients on the wire
  const char* summary;      // one line for `strata plugins list`
  // Likewise, for gradients on this rank. 0, and a struct that ends in front of it: F32 only.
  uint64_t accumulate_dtypes;
} strata_capabilities_t;
#define STRATA_CAPABILITIES_MIN_SIZE STRATA_MIN_SIZE(strata_capabilities_t, summary)

// One option that a strategy understands, for help texts and for naming the nearest known key.
typedef struct strata_option_info {
  uint32_t struct_size;
  uint32_t reserved;
  const char* key;            // for example "bucket_cap_mb"
  const char* default_value;  // as text, for example "25"
  const char* description;    // one sentence with the unit of measure
} strata_option_info_t;
#define STRATA_OPTION_INFO_MIN_SIZE STRATA_MIN_SIZE(strata_option_info_t, description)

typedef struct strata_create_args {
  uint32_t struct_size;
  uint32_t option_count;
  const char* name;                // which of the plugin's strategies
  const strata_option_t* options;  // the user's, not the defaults
  const strata_world_t* world;
  strata_device_t device;
  strata_host_t* host;  // NULL in estimate(); otherwise lent until destroy()
} strata_create_args_t;
#define STRATA_CREATE_ARGS_MIN_SIZE STRATA_MIN_SIZE(strata_create_args_t, host)

// ---- the model ----------------------------------------------------------------------------------

typedef struct strata_parameter {
  uint32_t struct_size;
  uint32_t dimensions;   // 0 for a scalar
  const char* name;      // unique in the model, for example "transformer.h.3.ln_1.weight"
  const int64_t* shape;  // `dimensions` sizes, row-major, contiguous
  uint64_t offset;       // first element in the unit's flat buffer
  uint64_t numel;        // may be 0
  int32_t trainable;     // 1 or 0 (frozen)
  int32_t reserved;
} strata_parameter_t;
#define STRATA_PARAMETER_MIN_SIZE STRATA_MIN_SIZE(strata_parameter_t, reserved)

// A unit before it has a layout, and after.
typedef struct strata_unit {
  uint32_t struct_size;
  uint32_t parameter_count;
  const char* name;                      // unique in the model, for example "block.3"
  const strata_parameter_t* parameters;  // by rising offset; offsets are 0 before layout
  // Elements of the flat buffer, padding included; before layout the sum of all numel.
  uint64_t numel;
  int32_t compute_dtype;  // what the model computes with: the dtype of the whole unit
  int32_t reduce_dtype;   // what gradients are sent in
  uint32_t entries;       // how often one forward enters the unit; above 1 for tied weights
  uint32_t trainable;     // 1 if any parameter is
  // What gradients are kept and added up in on this rank. 0, and a struct that ends in front of
  // it: F32.
  int32_t accumulate_dtype;
  int32_t reserved;
} strata_unit_t;
#define STRATA_UNIT_MIN_SIZE STRATA_MIN_SIZE(strata_unit_t, trainable)

// How the host must lay a unit out: each parameter begins at a multiple of `parameter_alignment`
// elements, and the flat buffer's numel is a multiple of `unit_multiple`. Padding elements are zero
// for ever: the host writes zeros into their gradients and masters.
typedef struct strata_layout {
  uint32_t struct_size;
  uint32_t reserved;
  // Elements, a power of two, at least 64 (a cache line and every vector width).
  uint64_t parameter_alignment;
  // Elements, a multiple of parameter_alignment, for example world size x 64.
  uint64_t unit_multiple;
} strata_layout_t;
#define STRATA_LAYOUT_MIN_SIZE STRATA_MIN_SIZE(strata_layout_t, unit_multiple)

typedef struct strata_model {
  uint32_t struct_size;
  uint32_t unit_count;
  const strata_unit_t* units;  // indices are used everywhere below
  uint32_t order_count;
  uint32_t reserved;
  // The declared forward order of entries, for example 0 1 2 3 0 (head tied to embedding).
  const uint32_t* order;
} strata_model_t;
#define STRATA_MODEL_MIN_SIZE STRATA_MIN_SIZE(strata_model_t, order)

// ---- a step -------------------------------------------------------------------------------------

#define STRATA_PHASE_FORWARD 1    // a forward that a backward follows
#define STRATA_PHASE_RECOMPUTE 2  // forward again, inside backward
#define STRATA_PHASE_BACKWARD 3
#define STRATA_PHASE_INFERENCE 4  // a forward that no backward follows

typedef struct strata_unit_context {
  uint32_t struct_size;
  uint32_t unit;  // index
  int32_t phase;  // STRATA_PHASE_*
  // Expected next in this phase, or STRATA_NONE. A wrong hint costs time, never correctness.
  uint32_t next_unit;
  // 0-based, inside the window. 0 begins a new window: what an abandoned one left is gone.
  uint32_t micro_batch;
  // 1: end_backward(1) closes this micro-batch; 0: it is an earlier one of the window.
  int32_t sync;
  // 1 in after_forward of the unit with which backward will begin: freeing it is waste.
  int32_t backward_begins_here;
  // after_backward only: trainable parameters (indices in the unit) that got no gradient on this
  // rank. The host has written zeros for them where the target's mode is WRITE. Ranks may differ.
  uint32_t missing_count;
  const uint32_t* missing;
  strata_stream_t compute;  // the stream on which the model computes
} strata_unit_context_t;
#define STRATA_UNIT_CONTEXT_MIN_SIZE STRATA_MIN_SIZE(strata_unit_context_t, compute)

// A whole unit in memory.
typedef struct strata_unit_view {
  uint32_t struct_size;
  int32_t dtype;         // compute dtype in a step; F32 (masters) from open_unit
  void* data;            // `numel` elements; valid and unmoved until the unit is released
  strata_event_t ready;  // the content may be read behind this event; NULL: at once
} strata_unit_view_t;
#define STRATA_UNIT_VIEW_MIN_SIZE STRATA_MIN_SIZE(strata_unit_view_t, ready)

// What after_forward and after_backward say of the unit's memory.
//
// Still valid: the host leaves the unit bound, also across steps, and the next view is at the same
// address.
#define STRATA_UNIT_KEPT 1
// The plugin will reuse the memory behind an event that it records on the compute stream: the host
// unbinds.
#define STRATA_UNIT_RELEASED 2

// The host writes every element: gradients, and zeros in padding, frozen and missing ones.
#define STRATA_GRADIENT_WRITE 1
// Earlier micro-batches of the window are in there: the host adds gradients and touches nothing
// else. Never in micro-batch 0.
#define STRATA_GRADIENT_ADD 2

typedef struct strata_gradient_target {
  uint32_t struct_size;
  int32_t dtype;  // the unit's accumulate_dtype; the host casts
  void* data;     // the unit's numel elements; the host's until after_backward
  int32_t mode;   // STRATA_GRADIENT_*
  int32_t reserved;
  strata_event_t ready;  // the buffer may be written behind this event; NULL: at once
} strata_gradient_target_t;
#define STRATA_GRADIENT_TARGET_MIN_SIZE STRATA_MIN_SIZE(strata_gradient_target_t, ready)

// A slice that this rank owns. Valid, with stable addresses, from attach() to detach(), wherever
// it lies: the host's optimizer runs on the device for PLACE_DEVICE, on the CPU otherwise, and
// keeps its moments in the same place.
typedef struct strata_partition {
  uint32_t struct_size;
  uint32_t unit;
  uint64_t offset;         // first element in the unit's flat buffer, a multiple of 64
  uint64_t numel;          // elements, padding included, a multiple of 64, not 0
  void* master;            // F32; with 32-bit compute it may be the parameter memory itself
  void* gradient;          // reduced gradient of `gradient_dtype`; NULL if the unit is frozen
  int32_t gradient_dtype;  // the unit's accumulate_dtype
  int32_t place;           // of master and gradient: STRATA_PLACE_*
  int32_t trainable;       // as the unit; frozen slices are partitions too, for checkpoints
  // 1: no copy is made by after_step, and its bytes count as parameters. 0 where the compute dtype
  // is not F32.
  int32_t master_is_parameter;
  uint32_t replicas;  // how many ranks hold the same copy, at least 1
  uint32_t replica;   // which of them this is, 0 .. replicas-1
  // Armed by after_backward() of this partition's unit in the micro-batch with sync = 1: recorded
  // before that call returns, on every rank, once a step. Behind it this step's gradient is final,
  // and neither gradient nor master is touched by the plugin before before_step(): norms, and
  // updates that need no global norm, may start before end_backward. Until that call it is the
  // event of an earlier backward and says nothing. NULL: the plugin cannot record it that early
  // (for example units that share a bucket), or there is nothing to wait for; the gradient is final
  // where end_backward() says so.
  strata_event_t gradient_ready;
} strata_partition_t;
#define STRATA_PARTITION_MIN_SIZE STRATA_MIN_SIZE(strata_partition_t, gradient_ready)

#define STRATA_REDUCE_SUM 1
#define STRATA_REDUCE_MIN 2
#define STRATA_REDUCE_MAX 3

// A few numbers of the host's.
typedef struct strata_small_reduction {
  uint32_t struct_size;
  int32_t dtype;   // F64 or I64
  int32_t op;      // STRATA_REDUCE_*
  uint32_t count;  // at most 4096
  void* values;    // in and out, host memory
} strata_small_reduction_t;
#define STRATA_SMALL_REDUCTION_MIN_SIZE STRATA_MIN_SIZE(strata_small_reduction_t, values)

// What a strategy would need, without running. Bytes on this rank.
typedef struct strata_estimate {
  uint32_t struct_size;
  uint32_t reserved;
  uint64_t param_bytes;
  uint64_t grad_bytes;
  // Masters that are not the parameters; the host adds the moments of its optimizer.
  uint64_t master_bytes;
  uint64_t partition_numel;      // elements that this rank updates: 4 bytes each and moment
  uint64_t gathered_peak_bytes;  // ring slots for parameters
  uint64_t staging_peak_bytes;   // ring slots for gradients, buckets
  uint64_t host_bytes;           // of all the above, what lies in host memory
  uint64_t sent_bytes_per_step;  // one micro-batch
} strata_estimate_t;
#define STRATA_ESTIMATE_MIN_SIZE STRATA_MIN_SIZE(strata_estimate_t, sent_bytes_per_step)

#define STRATA_INTENT_READ 1  // the view holds the current masters; writes are lost
// The content is undefined; close_unit stores what every rank wrote (the same bytes).
#define STRATA_INTENT_WRITE 2

// Descriptors that a slot gets are the caller's: what outlives the call is copied.
typedef struct strata_strategy_1 {
  uint32_t struct_size;
  uint32_t reserved;

  // ---- without an instance: [control] [local] [does not block] ----

  // How many strategies this library holds, at least 1.
  uint32_t (*count)(void);
  // Their names, for example "fsdp", "hsdp": letters, digits, '.', '_', '-'. NULL beyond the last.
  const char* (*name)(uint32_t index);

  // What the strategy of that name can do; constant. The host checks it before step 0 and refuses
  // in words.
  //
  // Returns   STRATA_OK
  //           STRATA_E_NOT_FOUND  no such name
  // On error  *out is unchanged.
  strata_status_t (*describe)(const char* name, strata_capabilities_t* out);

  // The index-th option of that strategy.
  //
  // Returns   STRATA_OK
  //           STRATA_E_NOT_FOUND  beyond the last, or no such name
  // On error  *out is unchanged.
  strata_status_t (*option)(const char* name, uint32_t index, strata_option_info_t* out);

  // Bytes and traffic of a model under a strategy, before it runs.
  //
  // `args->host` is NULL. Units have sizes but no offsets; the strategy applies its own layout.
  //
  // Returns   STRATA_OK
  //           STRATA_E_INVALID_ARGUMENT  an option or the world, as create()
  //           STRATA_E_UNSUPPORTED       the device; or this strategy has no estimate
  // On error  *out is unchanged.
  strata_status_t (*estimate)(const strata_create_args_t* args, const strata_model_t* model,
                              strata_estimate_t* out);

  // ---- life ----

  // Makes an instance for this rank.
  //
  // Parses the options (an unknown key is an error that names the nearest known one). Communicators
  // are made lazily, in attach() at the earliest: create() talks to no other rank.
  //
  // Returns   STRATA_OK                  *out is the instance, until destroy()
  //           STRATA_E_INVALID_ARGUMENT  an option or the world; the text has the value, what is
  //                                      allowed and a hint
  //           STRATA_E_UNSUPPORTED       the device
  //           STRATA_E_NOT_FOUND         no such name
  // On error  *out is NULL and nothing is left behind.
  // [control] [local] [does not block]
  strata_status_t (*create)(const strata_create_args_t* args, strata_strategy_t** out);

  // The layout wanted for one unit (with sizes, without offsets).
  //
  // Depends on the unit's sizes, the options and the world only, so that every rank and every call
  // gets the same answer.
  //
  // Returns   STRATA_OK
  // [control & created] [local] [does not block]
  strata_status_t (*layout)(strata_strategy_t* self, const strata_unit_t* unit,
                            strata_layout_t* out);

  // Takes the model over.
  //
  // Allocates what lies at rest, makes communicators, checks that all ranks agree on units, names,
  // sizes and options (the text names the first difference). Masters are zero until written through
  // open_unit.
  //
  // REQUIRES: units laid out as layout() asked.
  // Returns   STRATA_OK
  //           STRATA_E_INVALID_ARGUMENT  the ranks differ, or a unit is not laid out as asked
  //           STRATA_E_UNSUPPORTED       a dtype, or what describe() denies
  //           STRATA_E_OUT_OF_MEMORY, STRATA_E_TIMEOUT, STRATA_E_PEER_LOST, STRATA_E_ABORTED
  // On error  everything is freed; still [created].
  // [control & created -> between-steps] [collective] [blocks]
  strata_status_t (*attach)(strata_strategy_t* self, const strata_model_t* model);

  // Opens one whole unit of fp32 masters, for initialising, reading or writing.
  //
  // At most one is open at a time, so no rank ever needs the whole model. Waits by itself for what
  // after_step() began. The view is the host's until close_unit.
  //
  // Returns   STRATA_OK
  //           STRATA_E_STATE  one is open
  //           STRATA_E_OUT_OF_MEMORY, STRATA_E_TIMEOUT, STRATA_E_PEER_LOST, STRATA_E_ABORTED
  // On error  nothing is open.
  // [control & between-steps] [collective] [blocks]
  strata_status_t (*open_unit)(strata_strategy_t* self, uint32_t unit, int32_t intent,
                               strata_unit_view_t* out);

  // Closes it. With INTENT_WRITE masters and parameters now hold, on every rank, what the host has
  // written or queued in its compute stream before this call.
  //
  // Returns   STRATA_OK
  //           STRATA_E_STATE  not open
  //           STRATA_E_TIMEOUT, STRATA_E_PEER_LOST, STRATA_E_ABORTED
  // [control & between-steps] [collective] [blocks]
  strata_status_t (*close_unit)(strata_strategy_t* self, uint32_t unit);

  // ---- one micro-batch ----

  // Makes the unit whole: the host binds *out and makes its compute stream wait for out->ready.
  //
  // Called before the first entry of the unit in a forward (or recomputation) only: the host counts
  // entries of tied units and calls after_forward behind the last one. Starts the gather of
  // context->next_unit where that is worth it; what it starts is the same on every rank.
  //
  // Returns   STRATA_OK
  //           STRATA_E_OUT_OF_MEMORY, STRATA_E_TIMEOUT, STRATA_E_PEER_LOST, STRATA_E_ABORTED
  // On error  the unit stays unbound; only abort() and destroy() are legal from here.
  // [step & between-steps, in-forward, in-backward (recompute)] [collective] [does not block]
  strata_status_t (*before_forward)(strata_strategy_t* self, const strata_unit_context_t* context,
                                    strata_unit_view_t* out);

  // The unit's forward is queued in the compute stream. *residency says whether the host unbinds it
  // now.
  //
  // Never RELEASED in phase RECOMPUTE: the backward of the unit follows at once.
  //
  // Returns   as before_forward
  // [step & in-forward, in-backward (recompute)] [local] [does not block]
  strata_status_t (*after_forward)(strata_strategy_t* self, const strata_unit_context_t* context,
                                   int32_t* residency);

  // Makes the unit whole for its backward; the rest as before_forward. Called once per unit and
  // backward, also when recomputation gathered it just before.
  //
  // [step & in-forward, in-backward] [collective] [does not block]
  strata_status_t (*before_backward)(strata_strategy_t* self, const strata_unit_context_t* context,
                                     strata_unit_view_t* out);

  // Where the gradients of the unit go. Called once per trainable unit and backward, behind its
  // before_backward.
  //
  // The memory overlaps no unit that is bound and no target that is in use.
  //
  // Returns   STRATA_OK, STRATA_E_OUT_OF_MEMORY
  // [step & in-backward] [local] [does not block]
  strata_status_t (*gradient_target)(strata_strategy_t* self, const strata_unit_context_t* context,
                                     strata_gradient_target_t* out);

  // All gradients of the unit are queued in the compute stream: starts their reduction and returns
  // before the result is ready.
  //
  // Called once per unit and backward, in the declared reverse order, the same on every rank,
  // whatever got a gradient. The memory behind the gradient target is the plugin's again, behind
  // what is queued in the compute stream.
  //
  // Returns   STRATA_OK
  //           STRATA_E_TIMEOUT, STRATA_E_PEER_LOST, STRATA_E_ABORTED
  // On error  the unit stays bound; only abort() and destroy() are legal from here.
  // [step & in-backward] [collective] [does not block]
  strata_status_t (*after_backward)(strata_strategy_t* self, const strata_unit_context_t* context,
                                    int32_t* residency);

  // Closes the backward of one micro-batch.
  //
  // With sync = 1 the partitions hold the reduced gradients of the whole window once the compute
  // stream has passed this call (those in host memory: when it returns). With sync = 0 gradients
  // are kept for the next micro-batch: what is in partitions is undefined.
  //
  // Returns   STRATA_OK
  //           STRATA_E_UNSUPPORTED  sync = 0 without CAN_NO_SYNC or CAN_SYNC_EACH_BATCH
  //           STRATA_E_TIMEOUT, STRATA_E_PEER_LOST, STRATA_E_ABORTED
  // On error  only abort() and destroy() are legal from here.
  // [step & in-backward -> between-steps] [collective] [blocks on CPU]
  strata_status_t (*end_backward)(strata_strategy_t* self, int32_t sync);

  // ---- the step ----

  // How many partitions this rank has. Constant from attach() to detach(); may be 0.
  // [control, step & between-steps] [local] [does not block]
  uint32_t (*partition_count)(strata_strategy_t* self);

  // The index-th partition, by rising unit, then offset, without overlap. Constant as well.
  //
  // Together the partitions of all ranks cover every unit, each element `replicas` times.
  //
  // Returns   STRATA_OK
  //           STRATA_E_INVALID_ARGUMENT  beyond the last
  // [control, step & between-steps] [local] [does not block]
  strata_status_t (*partition)(strata_strategy_t* self, uint32_t index, strata_partition_t* out);

  // The host is about to write masters: pinned and device traffic, where there is any.
  //
  // Called once per step, behind end_backward(1) and in front of after_step.
  //
  // Returns   STRATA_OK
  //           STRATA_E_TIMEOUT, STRATA_E_PEER_LOST, STRATA_E_ABORTED
  // [step & between-steps] [collective] [does not block]
  strata_status_t (*before_step)(strata_strategy_t* self);

  // The host has queued its updates in the compute stream (for partitions in host memory: has done
  // them), or skipped this step (updated = 0).
  //
  // Casts and gathers what must be whole before the next forward. A gather may go on behind the
  // return: the view of the next before_forward has the event, open_unit() and quiesce() wait.
  //
  // Returns   STRATA_OK
  //           STRATA_E_TIMEOUT, STRATA_E_PEER_LOST, STRATA_E_ABORTED
  // [step & between-steps] [collective] [does not block]
  strata_status_t (*after_step)(strata_strategy_t* self, int32_t updated);

  // Reduces a few numbers over all ranks, in rank order: every rank gets the same bits.
  //
  // Returns   STRATA_OK
  //           STRATA_E_INVALID_ARGUMENT  dtype, op or count
  //           STRATA_E_TIMEOUT, STRATA_E_PEER_LOST, STRATA_E_ABORTED
  // On error  values are undefined.
  // [control, step & between-steps] [collective] [blocks]
  strata_status_t (*all_reduce_small)(strata_strategy_t* self,
                                      const strata_small_reduction_t* reduction);

  // ---- the end ----

  // Waits until nothing of this instance is running: streams empty, no collective pending.
  //
  // Returns   STRATA_OK, STRATA_E_TIMEOUT, STRATA_E_PEER_LOST, STRATA_E_ABORTED
  // [control & between-steps] [local] [blocks]
  strata_status_t (*quiesce)(strata_strategy_t* self);

  // Makes blocked and later collectives of this instance return STRATA_E_ABORTED within one second.
  // Idempotent; `reason` is for the log.
  // [any thread, any state] [local] [does not block]
  void (*abort)(strata_strategy_t* self, const char* reason);

  // Gives the model back: frees all memory of it. The instance may attach again.
  //
  // REQUIRES: nothing is running: quiesce() returned STRATA_OK and nothing was called since.
  // Returns   STRATA_OK
  // [control & between-steps -> created] [local] [blocks]
  strata_status_t (*detach)(strata_strategy_t* self);

  // Ends the instance in any state; NULL is legal. Communicates with nobody: what still runs is
  // ended first, as by abort(), and no memory is freed under it.
  // [control] [local] [blocks]
  void (*destroy)(strata_strategy_t* self);
} strata_strategy_1_t;

#ifdef __cplusplus
}
#endif
#endif  // STRATA_ABI_STRATEGY_H_
