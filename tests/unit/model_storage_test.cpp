// Storage binding: parameters follow the pointer, saved views too; unbound memory throws.
#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "strata/model/libtorch_compat.h"
#include "strata/model/unit_storage.h"

namespace strata::model {
namespace {

using ::testing::HasSubstr;

UnitSpec unit_of(std::vector<std::vector<int64_t>> shapes) {
  UnitSpec unit;
  unit.name = "block.3";
  for (auto& shape : shapes) unit.parameters.push_back({"p", std::move(shape), true});
  return unit;
}

std::unique_ptr<UnitStorage> storage_of(std::vector<std::vector<int64_t>> shapes,
                                        at::ScalarType dtype = at::kFloat) {
  UnitSpec unit = unit_of(std::move(shapes));
  FlatLayout layout = make_flat_layout(unit, 64, 64);
  return std::make_unique<UnitStorage>(std::move(unit), std::move(layout), dtype);
}

// Memory for one unit, with random content from a seed.
class Memory {
 public:
  Memory(const UnitStorage& unit, float value)
      : bytes_(static_cast<size_t>(unit.nbytes())), data_(std::aligned_alloc(64, bytes_)) {
    at::from_blob(data_, {unit.layout().numel}, unit.dtype()).fill_(value);
  }
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;
  ~Memory() {
    std::memset(data_, 0xff, bytes_);
    std::free(data_);
  }
  void* data() const { return data_; }

 private:
  size_t bytes_;
  void* data_;
};

template <typename Body>
std::string message_of(const Body& body) {
  try {
    body();
  } catch (const c10::Error& error) {
    return error.what_without_backtrace();
  }
  return "no error";
}

TEST(UnitStorage, MakesParametersLeavesAtTheirOffsetsOfOneStorage) {
  const auto unit = storage_of({{4, 5}, {7}});
  const Memory memory(*unit, 1.0f);
  unit->bind(memory.data());
  EXPECT_TRUE(unit->parameter(0).is_leaf());
  EXPECT_TRUE(unit->parameter(0).requires_grad());
  EXPECT_EQ(unit->parameter(0).sizes(), (std::vector<int64_t>{4, 5}));
  EXPECT_EQ(unit->parameter(0).data_ptr(), memory.data());
  EXPECT_EQ(unit->parameter(1).data_ptr(), static_cast<char*>(memory.data()) + 64 * 4);
  EXPECT_TRUE(unit->parameter(0).is_alias_of(unit->parameter(1)));
}

TEST(UnitStorage, MakesFrozenParametersWithoutGradient) {
  UnitSpec spec = unit_of({{2}, {2}});
  spec.parameters[1].is_trainable = false;
  UnitStorage unit(spec, make_flat_layout(spec, 64, 64));
  EXPECT_TRUE(unit.parameter(0).requires_grad());
  EXPECT_FALSE(unit.parameter(1).requires_grad());
}

TEST(UnitStorage, FollowsTheBoundMemory) {
  const auto unit = storage_of({{4}});
  const Memory ones(*unit, 1.0f);
  const Memory twos(*unit, 2.0f);
  unit->bind(ones.data());
  EXPECT_EQ(unit->parameter(0).sum().item<float>(), 4.0f);
  unit->bind(twos.data());
  EXPECT_EQ(unit->parameter(0).sum().item<float>(), 8.0f);
  EXPECT_EQ(unit->data(), twos.data());
}

TEST(UnitStorage, NamesTheUnitWhenItIsUsedBeforeTheFirstBind) {
  const auto unit = storage_of({{4}});
  EXPECT_FALSE(unit->is_bound());
  const std::string message = message_of([&] { unit->parameter(0).sum(); });
  EXPECT_THAT(message, HasSubstr("unit 'block.3' is not gathered"));
  EXPECT_THAT(message, HasSubstr("HINT:"));
}

TEST(UnitStorage, ThrowsOnReadsAndWritesOnceUnbound) {
  const auto unit = storage_of({{4, 4}, {4}});
  const Memory memory(*unit, 1.0f);
  unit->bind(memory.data());
  unit->unbind();
  unit->unbind();
  EXPECT_FALSE(unit->is_bound());
  const at::Tensor x = at::ones({2, 4});
  const auto is_refused = HasSubstr("unit 'block.3' is not gathered");
  EXPECT_THAT(message_of([&] { at::linear(x, unit->parameter(0), unit->parameter(1)); }),
              is_refused);
  EXPECT_THAT(message_of([&] { unit->parameter(0).clone(); }), is_refused);
  EXPECT_THAT(message_of([&] { unit->parameter(1).detach().fill_(3.0f); }), is_refused);
  EXPECT_THAT(message_of([&] { unit->parameter(1).data_ptr<float>(); }), is_refused);
  EXPECT_THAT(message_of([&] { unit->parameter(1).const_data_ptr<float>(); }), is_refused);
}

TEST(UnitStorage, ThrowsInBackwardWhenUnboundBehindForward) {
  const auto unit = storage_of({{4, 4}});
  const Memory memory(*unit, 1.0f);
  unit->bind(memory.data());
  const at::Tensor x = at::ones({2, 4}).requires_grad_();
  const at::Tensor loss = at::linear(x, unit->parameter(0)).sum();
  unit->unbind();
  EXPECT_THAT(message_of([&] { loss.backward(); }), HasSubstr("unit 'block.3' is not gathered"));
}

TEST(UnitStorage, GivesBitEqualGradientsWhenReboundElsewhereBetweenForwardAndBackward) {
  const auto unit = storage_of({{16, 16}, {16}});
  const at::Tensor content = at::randn({unit->layout().numel});
  const at::Tensor x = at::randn({8, 16}).requires_grad_();
  const at::Tensor weight =
      content.narrow(0, unit->layout().offsets[0], 256).view({16, 16}).clone().requires_grad_();
  const at::Tensor bias = content.narrow(0, unit->layout().offsets[1], 16).clone().requires_grad_();
  at::linear(at::linear(x, weight, bias).tanh(), weight, bias).square().sum().backward();
  const at::Tensor x_gradient = x.grad().clone();
  x.mutable_grad().reset();

  auto first = std::make_unique<Memory>(*unit, 0.0f);
  const Memory second(*unit, 0.0f);
  unit->bind(first->data());
  at::from_blob(first->data(), {unit->layout().numel}).copy_(content);
  at::from_blob(second.data(), {unit->layout().numel}).copy_(content);
  const at::Tensor& w = unit->parameter(0);
  const at::Tensor& b = unit->parameter(1);
  const at::Tensor loss = at::linear(at::linear(x, w, b).tanh(), w, b).square().sum();
  unit->unbind();
  first.reset();
  unit->bind(second.data());
  loss.backward();
  EXPECT_TRUE(at::equal(w.grad(), weight.grad()));
  EXPECT_TRUE(at::equal(b.grad(), bias.grad()));
  EXPECT_TRUE(at::equal(x.grad(), x_gradient));
}

TEST(UnitStorage, KeepsItsSizeInBytesWhateverIsBound) {
  const auto unit = storage_of({{3, 7}, {1}});
  const Memory memory(*unit, 1.0f);
  const auto nbytes = [&] { return unit->parameter(0).storage().nbytes(); };
  EXPECT_EQ(unit->nbytes(), 128 * 4);
  EXPECT_EQ(nbytes(), 512u);
  unit->bind(memory.data());
  EXPECT_EQ(nbytes(), 512u);
  unit->unbind();
  EXPECT_EQ(nbytes(), 512u);
}

TEST(UnitStorage, HoldsScalarsOddSizesAndParametersWithoutElements) {
  const auto unit = storage_of({{}, {0, 3}, {13}});
  const Memory memory(*unit, 2.0f);
  unit->bind(memory.data());
  EXPECT_EQ(unit->parameter(0).dim(), 0);
  EXPECT_EQ(unit->parameter(0).item<float>(), 2.0f);
  EXPECT_EQ(unit->parameter(1).sum().item<float>(), 0.0f);
  EXPECT_EQ(unit->parameter(2).sum().item<float>(), 26.0f);
  (unit->parameter(0) * unit->parameter(2).sum() + unit->parameter(1).sum()).backward();
  EXPECT_EQ(unit->parameter(0).grad().item<float>(), 26.0f);
  EXPECT_EQ(unit->parameter(1).grad().numel(), 0);
}

TEST(UnitStorage, IsBoundToNothingWhenItHasNoElements) {
  const auto unit = storage_of({{0}});
  EXPECT_EQ(unit->nbytes(), 0);
  unit->bind(nullptr);
  EXPECT_TRUE(unit->is_bound());
  EXPECT_EQ(unit->parameter(0).clone().numel(), 0);
  unit->unbind();
  EXPECT_FALSE(unit->is_bound());
}

TEST(UnitStorage, HoldsSixteenBitParameters) {
  const auto unit = storage_of({{8, 8}, {3}}, at::kBFloat16);
  EXPECT_EQ(unit->nbytes(), 128 * 2);
  const Memory memory(*unit, 1.5f);
  unit->bind(memory.data());
  EXPECT_EQ(unit->parameter(1).scalar_type(), at::kBFloat16);
  EXPECT_EQ(unit->parameter(1).sum().item<float>(), 4.5f);
  const at::Tensor x = at::ones({2, 8}, at::kBFloat16);
  at::linear(x, unit->parameter(0)).sum().backward();
  EXPECT_EQ(unit->parameter(0).grad().scalar_type(), at::kBFloat16);
  EXPECT_EQ(unit->parameter(0).grad()[0][0].item<float>(), 2.0f);
}

TEST(UnitStorage, CountsEpochsOnlyWhenTold) {
  const auto unit = storage_of({{4}});
  const Memory memory(*unit, 1.0f);
  const uint64_t epoch = unit->epoch();
  unit->bind(memory.data());
  unit->unbind();
  EXPECT_EQ(unit->epoch(), epoch);
  unit->advance_epoch();
  EXPECT_EQ(unit->epoch(), epoch + 1);
}

TEST(LibtorchCompat, LeavesBytesAndPoisonAsDocumented) {
  const auto unit = storage_of({{4}});
  c10::StorageImpl& storage = *unit->parameter(0).storage().unsafeGetStorageImpl();
  float value[64] = {};
  libtorch::bind_storage(storage, value);
  EXPECT_EQ(storage.data(), value);
  EXPECT_EQ(storage.mutable_data(), value);
  EXPECT_EQ(storage.nbytes(), 256u);
  libtorch::poison_storage(storage, "poisoned");
  EXPECT_EQ(storage.nbytes(), 256u);
  EXPECT_THAT(message_of([&] { (void)storage.data(); }), HasSubstr("poisoned"));
  EXPECT_THAT(message_of([&] { (void)storage.mutable_data(); }), HasSubstr("poisoned"));
  storage.set_data_ptr_noswap(c10::DataPtr(value, at::kCPU));
  EXPECT_THAT(message_of([&] { (void)storage.data(); }), HasSubstr("poisoned"));
}

}  // namespace
}  // namespace strata::model
