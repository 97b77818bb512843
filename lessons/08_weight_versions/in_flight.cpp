// Saves what is on its way when a step of lesson 08 ends, and goes on with it. A stage then holds
// micro-batches between forward and backward, older versions of its weights for them, gradients of an update
// that is not complete, the gradient that the next stage has sent, and sums to which earlier stages have yet
// to add.
#include <spdlog/fmt/fmt.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <stdexcept>

#include "common/comm/gather_text.h"
#include "weight_versions.h"

namespace sc {

using nlohmann::json;
using pipedream::Kind;

namespace {

constexpr const char* kName = "weight_versions";

// A run goes on with what was in flight in another one only if both have the same layout.
std::string layout_of(const Endless& endless, const BatchConfig& batch) {
  std::string blocks;
  for (const Part& part : endless.share.parts) blocks += fmt::format(" {}", part.blocks);
  return fmt::format("{}: blocks{}, micro-batches {} of {} x {}, an update every {}",
                     name_of(endless.options.versions), blocks, endless.microbatches, batch.micro,
                     batch.sequence, endless.update_every);
}

std::vector<double> row_of(const at::Tensor& numbers) {
  const at::Tensor host = numbers.cpu();
  const auto* begin = host.const_data_ptr<double>();
  return {begin, begin + host.numel()};
}

void fill_row(at::Tensor row, const std::vector<double>& numbers) {
  for (std::size_t i = 0; i < numbers.size(); ++i) row[static_cast<std::int64_t>(i)].fill_(numbers[i]);
}

// NaN is null in JSON, which has no number for it.
SavedSums::Rows rows_of(const json& saved) {
  SavedSums::Rows rows;
  for (const json& row : saved) {
    rows.emplace_back();
    for (const json& number : row)
      rows.back().push_back(number.is_null() ? std::nan("") : number.get<double>());
  }
  return rows;
}

}  // namespace

std::vector<StateSlice> WeightVersions::state() const {
  std::vector<StateSlice> state = state_of(stage_.last_local(), stage_.slices());
  // Before the first step no gradient is partly added up, so none is saved.
  if (endless_.update_every > 1 && windows_ > 0)
    for (StateSlice& slice : state) slice.pending = slice.purpose == Purpose::gradients;
  const int newest = slots_.versions().rbegin()->first;
  for (const auto& [version, buffer] : slots_.versions()) {
    if (version == newest) continue;
    for (const auto& [unit, params] : stage_.params_in(buffer)) {
      state.push_back({Purpose::parameters, unit, Segment::sharded, {0, params.numel()}, in_tensor(params)});
      state.back().version = newest - version, state.back().pending = true;
    }
  }
  return state;
}

// The next stage's backward of a micro-batch may be in an earlier step than this stage's: then its gradient
// has been received, and is saved.
std::vector<InFlight> WeightVersions::in_flight() {
  std::vector<InFlight> tensors;
  for (const auto& [id, slot] : slots_.alive()) {
    if (slot.grad_of_output == kNoBuffer) continue;
    const std::int64_t behind = windows_ * endless_.microbatches - id.first;
    tensors.push_back(
        {fmt::format("stage {}, gradient of the output of the micro-batch {} back", share_.stage, behind),
         stage_.grad(slot.grad_of_output)});
  }
  return tensors;
}

// [anchor: what-is-on-its-way]
// Numbers are few and go into the manifest. Sums of an update are complete when stage 0 has made it: until
// then each stage says what it has added itself.
std::string WeightVersions::pending() {
  if (windows_ == 0) return "{}";  // no step has filled the pipeline yet
  const SavedSums sums = sums_.saved(windows_, updates_);
  json own = json::array();
  for (const std::string& of_stage : gather_strings(context_.comm, json(sums.own).dump()))
    own.push_back(json::parse(of_stage));
  const std::int64_t waiting = share_.schedule.stages - 1;
  return json{{"put_off", fmt::format("{} micro-batch{} of step {}, on the way through the stages", waiting,
                                      waiting == 1 ? "" : "es", since_ + windows_ - 1)},
              {kName,
               {{"layout", layout_of(endless_, context_.shape.workload.batch)},
                {"since", since_},
                {"sums", sums.of_all},
                {"results", sums.results},
                {"own", own}}}}
      .dump();
}

SavedSums LateSums::saved(std::int64_t windows, std::int64_t updates) {
  SavedSums saved;
  const std::int64_t common = endless_.updates_after(0, windows);  // updates that all stages have made
  for (std::int64_t u = common; u < updates; ++u) saved.own.push_back(row_of(updates_[u].own));
  for (std::int64_t u = std::max<std::int64_t>(0, common - endless_.norm_lag); u < common; ++u) {
    if (!endless_.share.first) break;
    updates_[u].summed.wait();
    saved.of_all.push_back(row_of(updates_[u].sums));
  }
  for (std::int64_t step = windows - 1 - endless_.result_lag; step < windows; ++step)
    saved.results.push_back(row_of(results_[step].numbers));
  return saved;
}

// [anchor: on-its-way-again]
// The list says which buffer holds what. Buffers are restored, but for activations, which no checkpoint
// holds: those are computed again, by a forward with the version that the micro-batch had.
bool WeightVersions::resume(const ResumeFrom& from) {
  const json pending = json::parse(from.pending);
  const auto own = pending.find(kName);
  if (own == pending.end() || own->at("layout") != layout_of(endless_, context_.shape.workload.batch) ||
      !from.last_batches) {
    from.restore();
    return pending.empty();
  }
  // From window kSteady on all windows are alike, so that a few of them stand for however many there were.
  const auto since = own->at("since").get<std::int64_t>();
  if (since < 0 || since >= context_.first_step) throw std::out_of_range("since");
  windows_ = std::min<std::int64_t>(context_.first_step - since,
                                    pipedream::Windows::kSteady + 2 + endless_.result_lag);
  since_ = context_.first_step - windows_;
  const std::vector<Done> last_window = follow_the_list();
  from.restore();
  const auto stage = static_cast<std::size_t>(share_.stage);
  sums_.restore({rows_of(own->at("sums")), rows_of(own->at("own").at(stage)), rows_of(own->at("results"))},
                windows_, updates_);
  at::Tensor made = context_.scalars.step;  // stage 0's number of updates, from the manifest
  made.add_(updates_ - endless_.updates_after(0, windows_));
  forward_again(last_window, from.last_batches());
  return true;
}

// Takes the buffers that the windows so far have taken, without executing them. Returns the last window.
std::vector<WeightVersions::Done> WeightVersions::follow_the_list() {
  std::vector<Done> last;
  for (std::int64_t t = 0; t < windows_; ++t) {
    last.clear();
    for (const Action& action : endless_.windows.window(share_.stage, t)) {
      last.push_back({action, slots_.next(action)});
      if (action.kind != Kind::step) continue;
      versions_.in_buffer[last.back().slot.next_weights] = action.version;
      ++updates_;
    }
  }
  stage_.move_newest(newest_buffer());
  return last;
}

void LateSums::restore(const SavedSums& saved, std::int64_t windows, std::int64_t updates) {
  const std::int64_t common = endless_.updates_after(0, windows);
  std::int64_t step = windows - 1 - endless_.result_lag;
  for (const std::vector<double>& row : saved.results) fill_row(results_[step++].numbers, row);
  // Results are saved by stage 0, the last to note an update: what this stage had noted is noted again.
  const std::int64_t noted = std::max<std::int64_t>(0, updates - endless_.norm_lag);
  noted_ = std::max<std::int64_t>(0, common - endless_.norm_lag);
  std::int64_t update = common - static_cast<std::int64_t>(saved.of_all.size());
  if (update < 0) throw std::out_of_range("sums");
  for (const std::vector<double>& row : saved.of_all) {
    fill_row(updates_[update].sums, row);
    if (update < noted) {
      note(update);
      updates_[update].sums.zero_();
    }
    ++update;
  }
  for (; update < updates; ++update) {
    Update& u = updates_[update];
    fill_row(u.sums, saved.own.at(static_cast<std::size_t>(update - common)));
    u.own.copy_(u.sums);
    u.summed = everyone_->all_reduce(u.sums, {OpPurpose::sums});
  }
  send_result(windows - 1 - endless_.result_lag);
}

void WeightVersions::forward_again(const std::vector<Done>& last_window,
                                   std::span<const Batch> micro_batches) {
  const int stage = share_.stage;
  for (const auto& [a, slot] : last_window) {
    const std::int64_t i = a.microbatch - (windows_ - 1) * endless_.microbatches;
    if (a.kind == Kind::receive_activation && on_its_way(stage, a.microbatch))
      messages_.receive_activation(a, slot);
    if (a.kind == Kind::forward && on_its_way(stage, a.microbatch))
      forward(a, slot, micro_batches[static_cast<std::size_t>(i)]);
    if (a.kind == Kind::send_activation && on_its_way(stage + 1, a.microbatch))
      messages_.send_activation(a, slot);
  }
}

// A stage is as many micro-batches behind as there are stages after it.
bool WeightVersions::on_its_way(int stage, int microbatch) const {
  return microbatch >= windows_ * endless_.microbatches - (share_.schedule.stages - 1 - stage);
}

}  // namespace sc
