// Lesson 06's setting `params_at`: the home of this rank's slice of the parameters, between the update that
// makes them and the device. The window's mechanism, in infinity.cpp, is the same for all of them.
//
//   params_at, update  home            who sends a piece to the device      when the host may overwrite it
//   device, exact      ParamsInWindow  forward's fetch, once per update     when the window's buffer is free
//   device, delayed    ParamsOnHost    forward's fetch, once per step       when no coming step fetches it
//   host               ParamsOnHost    every gather of its unit             when the next step has begun
//   disk               ParamsOnDisk    every gather of its unit             when the next step has begun
#include "infinity.h"
#include "params_on_disk.h"
#include "window_plan.h"

namespace sc {

Infinity::Delivery Infinity::delivery_of(const Options& options) {
  if (options.params_at != ParamsAt::device) return {.by_gathers = true};
  if (options.update == UpdateKind::delayed) return {.by_forward = true};
  return {.by_forward = true, .from_window = true};
}

std::unique_ptr<ParamHome> Infinity::make_home(const WindowPlan& plan) {
  const auto in_pieces = [&](const char* name) {
    const at::Tensor all = buffers_.zeros(name);
    if (!all.defined()) return std::vector<at::Tensor>();
    return all.view(to_aten(plan.dtype)).view({plan.buffers, -1}).unbind();
  };
  if (delivery_.from_window) {
    std::vector<at::Tensor> on_device;
    for (const Piece& p : pieces_) on_device.push_back(params_on_device(p));
    return std::make_unique<ParamsInWindow>(window_, in_pieces("window of parameters"), std::move(on_device));
  }
  if (options_.params_at != ParamsAt::disk)
    return std::make_unique<ParamsOnHost>(
        window_, buffers_.zeros("params_host").view({params_on_host(options_), -1}).unbind());
  return std::make_unique<ParamsOnDisk>(ParamsOnDisk::Setting{.file = *file_,
                                                              .window = window_,
                                                              .first_extent = pieces_.size(),
                                                              .versions = versions_of(options_),
                                                              .out = in_pieces("parameters to the disk"),
                                                              .in = in_pieces("parameters from the disk")});
}

// Whether forward's fetch sends a piece. An evaluation may have taken it out of the window already.
bool Infinity::to_send(std::size_t i) const {
  return delivery_.by_forward && (!delivery_.from_window || optimizer_->sends(i) < due());
}

// Called before an evaluation or a save. Parameters in the window are sent once: this copy counts for the
// coming step, which does not repeat it. Those on the host are sent again, and this copy does not count.
void Infinity::send_now(std::size_t i) {
  if (!to_send(i)) return;
  Ticket ticket = copy_up(i, delivery_.from_window ? Copies::OfStep(step_) : Copies::OfStep());
  if (delivery_.from_window) optimizer_->sent(i, ticket.end());
  ticket.wait_on_host();
}

// How often a piece must have been sent before the step's update may overwrite it (UpdateClock::after_sends).
// In the window no update waits for sends: a buffer is not free before the parameters in it have been sent.
std::int64_t Infinity::after_sends() const { return delivery_.from_window ? 0 : clock_.after_sends(step_); }

// The version, in updates, of the parameters that a checkpoint reads in their home.
std::int64_t Infinity::kept_version() const { return delivery_.by_gathers ? optimizer_->settle() : 0; }

// Gathers send a piece any number of times: all those of a step count as one send, which ends here.
void Infinity::end_gathers() {
  if (!delivery_.by_gathers) return;
  for (std::size_t i = 0; i < pieces_.size(); ++i) optimizer_->sent(i, {});
}

// Copies a unit's pieces from their home to their place on the device, each time that the unit is gathered.
void Infinity::bring_params(int unit) {
  if (!delivery_.by_gathers) return;
  for (const std::size_t i : optimizer_->pieces_of(unit)) {
    const auto began = StepClock::Clock::now();
    Ticket ticket = copy_up(i);
    file_->clock().waited(began, StepClock::Clock::now());
    params_->sent(ticket.end());
    arriving_[unit].push_back(std::move(ticket));
  }
}

// Tells the home the order of the coming gathers, so that a disk can read ahead: forward gathers what is not
// in its buffer, and backward what forward has displaced.
void Infinity::expect_gathers(bool backward) {
  if (!delivery_.by_gathers) return;
  std::vector<std::size_t> pieces;
  std::vector<int> in_buffer = in_buffer_;
  const auto gather = [&](int unit) {
    int& there = in_buffer[params_buffer_[unit]];
    const std::span<const std::size_t> its = optimizer_->pieces_of(unit);
    if (there != unit) pieces.insert(pieces.end(), its.begin(), its.end());
    there = unit;
  };
  for (int unit = 0; unit <= layout_.last_unit(); ++unit) gather(unit);
  for (int unit = layout_.num_blocks(); backward && unit >= 1; --unit) gather(unit);
  params_->expect(pieces);
}

}  // namespace sc
