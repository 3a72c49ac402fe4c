// Holds sdk/nccl_api.h against the real nccl.h: values, layouts, signatures. All of it happens when
// this compiles.
#include <gtest/gtest.h>
#include <nccl.h>

#include <type_traits>

#include "strata/sdk/nccl_api.h"

namespace strata::sdk::nccl {
namespace {

static_assert(sizeof(UniqueId) == sizeof(ncclUniqueId) && kUniqueIdBytes == NCCL_UNIQUE_ID_BYTES);
static_assert(std::is_same_v<Comm, ncclComm_t>);

#define STRATA_SAME_VALUE(ours, theirs) \
  static_assert(static_cast<int64_t>(ours) == static_cast<int64_t>(theirs))
STRATA_SAME_VALUE(Result::kSuccess, ncclSuccess);
STRATA_SAME_VALUE(Result::kUnhandledCudaError, ncclUnhandledCudaError);
STRATA_SAME_VALUE(Result::kSystemError, ncclSystemError);
STRATA_SAME_VALUE(Result::kInternalError, ncclInternalError);
STRATA_SAME_VALUE(Result::kInvalidArgument, ncclInvalidArgument);
STRATA_SAME_VALUE(Result::kInvalidUsage, ncclInvalidUsage);
STRATA_SAME_VALUE(Result::kRemoteError, ncclRemoteError);
STRATA_SAME_VALUE(Result::kInProgress, ncclInProgress);
STRATA_SAME_VALUE(Op::kSum, ncclSum);
STRATA_SAME_VALUE(Op::kMax, ncclMax);
STRATA_SAME_VALUE(Op::kMin, ncclMin);
STRATA_SAME_VALUE(DataType::kUint8, ncclUint8);
STRATA_SAME_VALUE(DataType::kInt32, ncclInt32);
STRATA_SAME_VALUE(DataType::kInt64, ncclInt64);
STRATA_SAME_VALUE(DataType::kFloat16, ncclFloat16);
STRATA_SAME_VALUE(DataType::kFloat32, ncclFloat32);
STRATA_SAME_VALUE(DataType::kFloat64, ncclFloat64);
STRATA_SAME_VALUE(DataType::kBfloat16, ncclBfloat16);
STRATA_SAME_VALUE(kConfigUndefined, NCCL_CONFIG_UNDEF_INT);
STRATA_SAME_VALUE(kSplitNoColor, NCCL_SPLIT_NOCOLOR);

// The configuration of the version that ours claims to be; later ones only add fields at the end.
#define STRATA_SAME_FIELD(ours, theirs)                                     \
  static_assert(offsetof(Config, ours) == offsetof(ncclConfig_t, theirs) && \
                sizeof(Config::ours) == sizeof(ncclConfig_t::theirs))
STRATA_SAME_FIELD(size, size);
STRATA_SAME_FIELD(magic, magic);
STRATA_SAME_FIELD(version, version);
STRATA_SAME_FIELD(blocking, blocking);
#if NCCL_VERSION_CODE >= NCCL_VERSION(2, 28, 0)
STRATA_SAME_FIELD(cga_cluster_size, cgaClusterSize);
STRATA_SAME_FIELD(net_name, netName);
STRATA_SAME_FIELD(split_share, splitShare);
STRATA_SAME_FIELD(traffic_class, trafficClass);
STRATA_SAME_FIELD(comm_name, commName);
STRATA_SAME_FIELD(collnet_enable, collnetEnable);
STRATA_SAME_FIELD(cta_policy, CTAPolicy);
STRATA_SAME_FIELD(shrink_share, shrinkShare);
STRATA_SAME_FIELD(nvls_ctas, nvlsCTAs);
STRATA_SAME_FIELD(channels_per_net_peer, nChannelsPerNetPeer);
STRATA_SAME_FIELD(nvlink_centric_sched, nvlinkCentricSched);
#endif

// Ours and theirs pass the same thing: pointers for pointers, enums for enums, everything else of
// the same size, integers for integers.
template <typename Ours, typename Theirs>
constexpr bool kIsSameArgument =
    sizeof(Ours) == sizeof(Theirs) &&
    std::is_pointer_v<Ours> == std::is_pointer_v<Theirs>&& std::is_enum_v<Ours> ==
        std::is_enum_v<Theirs>&& std::is_integral_v<Ours> ==
        std::is_integral_v<Theirs>&& std::is_class_v<Ours> == std::is_class_v<Theirs>;

template <typename Ours, typename Theirs>
struct SameSignature : std::false_type {};
template <typename R, typename... Ours, typename S, typename... Theirs>
requires(sizeof...(Ours) ==
         sizeof...(Theirs)) struct SameSignature<R (*)(Ours...), S (*)(Theirs...)>
    : std::bool_constant<kIsSameArgument<R, S> && (kIsSameArgument<Ours, Theirs> && ...)> {
};

#define STRATA_SAME_FUNCTION(ours, theirs) \
  static_assert(SameSignature<decltype(Api::ours), decltype(&theirs)>::value)
STRATA_SAME_FUNCTION(get_version, ncclGetVersion);
STRATA_SAME_FUNCTION(get_unique_id, ncclGetUniqueId);
STRATA_SAME_FUNCTION(comm_init_rank, ncclCommInitRank);
STRATA_SAME_FUNCTION(comm_init_rank_config, ncclCommInitRankConfig);
STRATA_SAME_FUNCTION(comm_split, ncclCommSplit);
STRATA_SAME_FUNCTION(comm_finalize, ncclCommFinalize);
STRATA_SAME_FUNCTION(comm_destroy, ncclCommDestroy);
STRATA_SAME_FUNCTION(comm_abort, ncclCommAbort);
STRATA_SAME_FUNCTION(comm_get_async_error, ncclCommGetAsyncError);
STRATA_SAME_FUNCTION(comm_count, ncclCommCount);
STRATA_SAME_FUNCTION(comm_user_rank, ncclCommUserRank);
STRATA_SAME_FUNCTION(get_error_string, ncclGetErrorString);
STRATA_SAME_FUNCTION(get_last_error, ncclGetLastError);
STRATA_SAME_FUNCTION(mem_alloc, ncclMemAlloc);
STRATA_SAME_FUNCTION(mem_free, ncclMemFree);
STRATA_SAME_FUNCTION(comm_register, ncclCommRegister);
STRATA_SAME_FUNCTION(comm_deregister, ncclCommDeregister);
STRATA_SAME_FUNCTION(all_gather, ncclAllGather);
STRATA_SAME_FUNCTION(reduce_scatter, ncclReduceScatter);
STRATA_SAME_FUNCTION(all_reduce, ncclAllReduce);
STRATA_SAME_FUNCTION(broadcast, ncclBroadcast);
STRATA_SAME_FUNCTION(group_start, ncclGroupStart);
STRATA_SAME_FUNCTION(group_end, ncclGroupEnd);
// The comparison can fail.
static_assert(!SameSignature<decltype(Api::all_gather), decltype(&ncclAllReduce)>::value);
static_assert(!SameSignature<decltype(Api::mem_free), decltype(&ncclMemAlloc)>::value);

TEST(NcclApi, AgreesWithTheInstalledHeader) {
  EXPECT_GE(NCCL_VERSION_CODE, 21900);
  const ncclConfig_t theirs = NCCL_CONFIG_INITIALIZER;
  EXPECT_EQ(theirs.magic, Config().magic);
}

}  // namespace
}  // namespace strata::sdk::nccl
