// The homes of this rank's slice of the parameters, where it lies between the update that makes it and the
// device (params_at.cpp has the table of them).
#pragma once

#include <memory>
#include <vector>

#include "common/offload/host_optimizer.h"
#include "common/strategy/state_slice.h"
#include "window.h"

namespace sc {

class ParamHome : public ParamSlots {
 public:
  /// Whether the window's buffer of this number has been left by its parameters, and may be used again.
  /// Called by the thread that updates.
  [[nodiscard]] virtual bool left(Number /*number*/, const HostOptimizer& /*host*/) const { return true; }
  // What follows is called by the strategy's thread.
  /// Takes a copy of the piece's master before the first step.
  virtual void keep_first_values(std::size_t piece, const at::Tensor& master) {
    destination(piece, 0).copy_(master);
  }
  /// These pieces will be brought, in this order, and no others before all of them have been.
  virtual void expect(const std::vector<std::size_t>& /*pieces*/) {}
  /// Returns a version that is complete, [n] in pinned memory, to be copied to the device. sent() is told the
  /// copy's end before bring() is called again.
  virtual at::Tensor bring(std::size_t piece, std::int64_t version) = 0;
  virtual void sent(OpEnd /*end*/) {}
  /// A checkpoint's access to a version, while neither thread does anything.
  virtual std::shared_ptr<StateValues> values(std::size_t piece, std::int64_t version) = 0;
  [[nodiscard]] virtual Place place() const = 0;
};

/// Parameters lie in the window until they have been sent to the device, where they stay.
class ParamsInWindow final : public ParamHome {
 public:
  /// rounded: by buffer of the window; none where the master itself is sent, out of the window's states.
  /// on_device: by piece, the place to which it is sent.
  ParamsInWindow(const Window& window, std::vector<at::Tensor> rounded, std::vector<at::Tensor> on_device)
      : window_(window), rounded_(std::move(rounded)), on_device_(std::move(on_device)) {}
  at::Tensor destination(std::size_t piece, std::int64_t version) override;
  [[nodiscard]] bool left(Number number, const HostOptimizer& host) const override {
    return host.sent_since(number);
  }
  void keep_first_values(std::size_t piece, const at::Tensor& master) override {
    on_device_[piece].copy_(master);
  }
  at::Tensor bring(std::size_t piece, std::int64_t version) override;
  std::shared_ptr<StateValues> values(std::size_t piece, std::int64_t /*version*/) override {
    return in_tensor(on_device_[piece]);
  }
  [[nodiscard]] Place place() const override { return Place::device; }

 private:
  const Window& window_;
  const std::vector<at::Tensor> rounded_, on_device_;
};

/// Parameters lie in host memory, in an arena for each version that is kept, which has all pieces one after
/// the other.
class ParamsOnHost final : public ParamHome {
 public:
  ParamsOnHost(const Window& window, std::vector<at::Tensor> arenas)
      : window_(window), arenas_(std::move(arenas)) {}
  at::Tensor destination(std::size_t piece, std::int64_t version) override;
  at::Tensor bring(std::size_t piece, std::int64_t version) override { return destination(piece, version); }
  std::shared_ptr<StateValues> values(std::size_t piece, std::int64_t version) override {
    return in_tensor(destination(piece, version));
  }
  [[nodiscard]] Place place() const override { return Place::pinned; }

 private:
  const Window& window_;
  const std::vector<at::Tensor> arenas_;
};

}  // namespace sc
