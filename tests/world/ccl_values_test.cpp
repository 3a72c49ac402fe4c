// What collectives compute: every kind, rank count, buffer kind, placement and size gives what one
// process computes in rank order.
#include <bit>
#include <cmath>
#include <limits>
#include <random>

#include "tests/world/ccl_fixture.h"

namespace strata::tests {
namespace {

// Which buffers are in shared memory.
enum class Sharing { kAll, kNone, kSendOnly, kReceiveOnly, kFirstRankOnly, kOddRanksOnly };

bool shares_send(Sharing sharing, int rank) {
  return sharing == Sharing::kAll || sharing == Sharing::kSendOnly ||
         (sharing == Sharing::kFirstRankOnly && rank == 0) ||
         (sharing == Sharing::kOddRanksOnly && rank % 2 == 1);
}
bool shares_receive(Sharing sharing, int rank) {
  return sharing == Sharing::kReceiveOnly ||
         (sharing != Sharing::kSendOnly && shares_send(sharing, rank));
}

// Sums of these depend on the order in which they are made.
float value(int rank, size_t i) {
  auto bits = static_cast<uint32_t>(i * 2654435761U + static_cast<size_t>(rank) * 40503U + 1U);
  bits ^= bits >> 15;
  bits *= 2246822519U;
  // Any sign and fraction; exponents within 16 of each other.
  bits = (bits & 0x807FFFFFU) | (((bits >> 23) % 16 + 119) << 23);
  return std::bit_cast<float>(bits);
}
float sum_in_rank_order(int size, size_t i) {
  float sum = value(0, i);
  for (int r = 1; r < size; ++r) sum += value(r, i);
  return sum;
}

class CclValues : public ::testing::TestWithParam<std::tuple<int, Sharing>> {
 protected:
  // Small, odd, one chunk of staging, several chunks.
  static constexpr size_t kCounts[] = {0, 1, 7, 1000, 65536, 150001};
  int size() const { return std::get<0>(GetParam()); }
  Sharing sharing() const { return std::get<1>(GetParam()); }
  void run(const std::function<void(CclRank&)>& body) { run_ccl_ranks({size()}, body); }
};

std::string name_of(const ::testing::TestParamInfo<std::tuple<int, Sharing>>& info) {
  static constexpr const char* kNames[] = {"AllShared",     "NoneShared",      "SendShared",
                                           "ReceiveShared", "FirstRankShared", "OddRanksShared"};
  return std::to_string(std::get<0>(info.param)) + "Ranks" +
         kNames[static_cast<int>(std::get<1>(info.param))];
}

INSTANTIATE_TEST_SUITE_P(
    EveryWorld, CclValues,
    ::testing::Combine(::testing::Values(1, 2, 3, 4),
                       ::testing::Values(Sharing::kAll, Sharing::kNone, Sharing::kSendOnly,
                                         Sharing::kReceiveOnly, Sharing::kFirstRankOnly,
                                         Sharing::kOddRanksOnly)),
    name_of);

TEST_P(CclValues, AllReduceSumsInRankOrder) {
  run([&](CclRank& r) {
    for (const size_t count : kCounts) {
      for (const bool in_place : {true, false}) {
        TestBuffer<float> receive(shares_receive(sharing(), r.rank), count);
        TestBuffer<float> apart(shares_send(sharing(), r.rank), count);
        TestBuffer<float>& send = in_place ? receive : apart;
        for (size_t i = 0; i < count; ++i) send[i] = value(r.rank, i);
        ASSERT_EQ(ccl().all_reduce(send.data(), receive.data(), count, nccl::DataType::kFloat32,
                                   nccl::Op::kSum, r.comm, r.stream),
                  nccl::Result::kSuccess);
        r.queue->drain();
        ASSERT_EQ(r.async_error(), nccl::Result::kSuccess) << r.error_text();
        for (size_t i = 0; i < count; ++i) {
          ASSERT_EQ(receive[i], sum_in_rank_order(r.size, i)) << i << " of " << count;
        }
      }
    }
  });
}

TEST_P(CclValues, ReduceScatterSumsInRankOrder) {
  run([&](CclRank& r) {
    const auto size = static_cast<size_t>(r.size);
    const auto rank = static_cast<size_t>(r.rank);
    for (const size_t count : kCounts) {
      for (const bool in_place : {true, false}) {
        TestBuffer<float> send(shares_send(sharing(), r.rank), count * size);
        TestBuffer<float> apart(shares_receive(sharing(), r.rank), count);
        float* receive = in_place ? send.data() + rank * count : apart.data();
        for (size_t i = 0; i < count * size; ++i) send[i] = value(r.rank, i);
        ASSERT_EQ(ccl().reduce_scatter(send.data(), receive, count, nccl::DataType::kFloat32,
                                       nccl::Op::kSum, r.comm, r.stream),
                  nccl::Result::kSuccess);
        r.queue->drain();
        ASSERT_EQ(r.async_error(), nccl::Result::kSuccess) << r.error_text();
        for (size_t i = 0; i < count; ++i) {
          ASSERT_EQ(receive[i], sum_in_rank_order(r.size, rank * count + i)) << i;
        }
      }
    }
  });
}

TEST_P(CclValues, AllGatherPutsEveryRankInItsPlace) {
  run([&](CclRank& r) {
    const auto size = static_cast<size_t>(r.size);
    const auto rank = static_cast<size_t>(r.rank);
    for (const size_t count : kCounts) {
      for (const bool in_place : {true, false}) {
        TestBuffer<float> receive(shares_receive(sharing(), r.rank), count * size);
        TestBuffer<float> apart(shares_send(sharing(), r.rank), count);
        float* send = in_place ? receive.data() + rank * count : apart.data();
        for (size_t i = 0; i < count; ++i) send[i] = value(r.rank, i);
        ASSERT_EQ(ccl().all_gather(send, receive.data(), count, nccl::DataType::kFloat32, r.comm,
                                   r.stream),
                  nccl::Result::kSuccess);
        r.queue->drain();
        ASSERT_EQ(r.async_error(), nccl::Result::kSuccess) << r.error_text();
        for (size_t peer = 0; peer < size; ++peer) {
          for (size_t i = 0; i < count; ++i) {
            ASSERT_EQ(receive[peer * count + i], value(static_cast<int>(peer), i)) << peer;
          }
        }
      }
    }
  });
}

TEST_P(CclValues, BroadcastGivesTheRootsValues) {
  run([&](CclRank& r) {
    for (const size_t count : kCounts) {
      for (int root = 0; root < r.size; ++root) {
        TestBuffer<float> send(shares_send(sharing(), r.rank), count);
        TestBuffer<float> receive(shares_receive(sharing(), r.rank), count);
        for (size_t i = 0; i < count; ++i) send[i] = value(r.rank, i);
        ASSERT_EQ(ccl().broadcast(send.data(), receive.data(), count, nccl::DataType::kFloat32,
                                  root, r.comm, r.stream),
                  nccl::Result::kSuccess);
        // In place, too: from the receive buffer of one root to the next.
        ASSERT_EQ(ccl().broadcast(receive.data(), receive.data(), count, nccl::DataType::kFloat32,
                                  0, r.comm, r.stream),
                  nccl::Result::kSuccess);
        r.queue->drain();
        ASSERT_EQ(r.async_error(), nccl::Result::kSuccess) << r.error_text();
        for (size_t i = 0; i < count; ++i) ASSERT_EQ(receive[i], value(root, i));
      }
    }
  });
}

template <typename T>
void expect_reductions(CclRank& r, nccl::DataType type, bool is_shared) {
  const size_t count = 333;
  TestBuffer<T> send(is_shared, count + 1);
  TestBuffer<T> receive(is_shared, count + 1);
  for (const nccl::Op op : {nccl::Op::kSum, nccl::Op::kMin, nccl::Op::kMax}) {
    const auto number = [](int rank, size_t i) {
      return static_cast<T>((i * 13 + static_cast<size_t>(rank) * 29) % 50);
    };
    // One element into the buffers, so that vectors are not aligned.
    for (size_t i = 0; i < count; ++i) send[i + 1] = number(r.rank, i);
    ASSERT_EQ(
        ccl().all_reduce(send.data() + 1, receive.data() + 1, count, type, op, r.comm, r.stream),
        nccl::Result::kSuccess);
    r.queue->drain();
    for (size_t i = 0; i < count; ++i) {
      T expected = number(0, i);
      for (int peer = 1; peer < r.size; ++peer) {
        const T other = number(peer, i);
        expected = op == nccl::Op::kSum   ? static_cast<T>(expected + other)
                   : op == nccl::Op::kMin ? std::min(expected, other)
                                          : std::max(expected, other);
      }
      ASSERT_EQ(receive[i + 1], expected) << i;
    }
  }
}

TEST(CclTypes, SumMinimumAndMaximumOfEveryPlainType) {
  for (const bool is_shared : {true, false}) {
    run_ccl_ranks({3}, [&](CclRank& r) {
      expect_reductions<float>(r, nccl::DataType::kFloat32, is_shared);
      expect_reductions<double>(r, nccl::DataType::kFloat64, is_shared);
      expect_reductions<int64_t>(r, nccl::DataType::kInt64, is_shared);
      expect_reductions<int32_t>(r, nccl::DataType::kInt32, is_shared);
      expect_reductions<uint8_t>(r, nccl::DataType::kUint8, is_shared);
    });
  }
}

TEST(CclTypes, AllReduceAndReduceScatterAgreeToTheBitWhateverTheSize) {
  for (const nccl::DataType type : {nccl::DataType::kBfloat16, nccl::DataType::kFloat16}) {
    for (const bool is_shared : {true, false}) {
      run_ccl_ranks({3}, [&](CclRank& r) {
        const size_t part = 100'003;
        std::mt19937 random(static_cast<unsigned>(r.rank));
        TestBuffer<uint16_t> send(is_shared, 3 * part);
        TestBuffer<uint16_t> whole(is_shared, 3 * part);
        TestBuffer<uint16_t> mine(is_shared, part);
        TestBuffer<uint16_t> pieces(is_shared, 3 * part);
        // Exponents that are neither all ones nor all zeros: finite in both formats.
        for (size_t i = 0; i < 3 * part; ++i) {
          send[i] = static_cast<uint16_t>((random() & 0x87FF) | 0x3800);
        }
        ccl().all_reduce(send.data(), whole.data(), 3 * part, type, nccl::Op::kSum, r.comm,
                         r.stream);
        ccl().reduce_scatter(send.data(), mine.data(), part, type, nccl::Op::kSum, r.comm,
                             r.stream);
        for (size_t begin = 0; begin < 3 * part; begin += 70'001) {
          const size_t count = std::min<size_t>(70'001, 3 * part - begin);
          ccl().all_reduce(send.data() + begin, pieces.data() + begin, count, type, nccl::Op::kSum,
                           r.comm, r.stream);
        }
        r.queue->drain();
        ASSERT_EQ(r.async_error(), nccl::Result::kSuccess) << r.error_text();
        EXPECT_EQ(whole.values(static_cast<size_t>(r.rank) * part, part), mine.values(0, part));
        EXPECT_EQ(whole.values(0, 3 * part), pieces.values(0, 3 * part));
      });
    }
  }
}

TEST(CclTypes, MinimumAndMaximumKeepNaNOfAnyRank) {
  run_ccl_ranks({2}, [](CclRank& r) {
    for (const int holder : {0, 1}) {
      float number = r.rank == holder ? std::numeric_limits<float>::quiet_NaN() : 1.0F;
      ccl().all_reduce(&number, &number, 1, nccl::DataType::kFloat32, nccl::Op::kMax, r.comm,
                       r.stream);
      r.queue->drain();
      EXPECT_TRUE(std::isnan(number));
    }
  });
}

}  // namespace
}  // namespace strata::tests
