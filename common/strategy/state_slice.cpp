#include "common/strategy/state_slice.h"

#include <ATen/ops/empty.h>

#include "common/memory/ledger.h"

namespace sc {
namespace {

class TensorValues final : public StateValues {
 public:
  explicit TensorValues(at::Tensor flat) : flat_(std::move(flat)) {}
  [[nodiscard]] DType dtype() const override { return from_aten(flat_.scalar_type()); }
  void read(Range part, at::Tensor& into) const override {
    into.copy_(flat_.narrow(0, part.begin, part.size()));
  }
  void write(Range part, const at::Tensor& from) override {
    flat_.narrow(0, part.begin, part.size()).copy_(from);
  }

 private:
  at::Tensor flat_;
};

}  // namespace

std::shared_ptr<StateValues> in_tensor(const at::Tensor& flat) {
  return std::make_shared<TensorValues>(flat);
}

at::Tensor StateSlice::copy() const {
  at::Tensor all = at::empty({range.size()}, to_aten(values->dtype()));
  read(range, all);
  return all;
}

}  // namespace sc
