// What is on its way when a step of lesson 08 ends: for a checkpoint, and from one. A stage holds
// micro-batches between forward and backward, older versions of its weights for them, gradients of an update
// that is not complete, the gradient that the next stage has sent, and sums that stages behind it have yet to
// add to.
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
using pipedream::VersionRule;

namespace {

constexpr const char* kName = "weight_versions";

using Rows = std::vector<std::vector<double>>;

// What has to be the same for what is in flight to have a meaning.
std::string layout_of(const Endless& endless, const VersionOptions& options, const RunShape& shape) {
  std::string blocks;
  for (const Part& part : endless.share.parts) blocks += fmt::format(" {}", part.blocks);
  return fmt::format("{}: blocks{}, micro-batches {} of {} x {}, an update every {}",
                     name_of(options.versions), blocks, endless.microbatches, shape.workload.batch.micro,
                     shape.workload.batch.sequence, endless.update_every);
}

std::vector<double> row_of(const at::Tensor& numbers) {
  const at::Tensor host = numbers.cpu();
  const auto* begin = host.const_data_ptr<double>();
  return {begin, begin + host.numel()};
}

void fill_row(at::Tensor row, const std::vector<double>& numbers) {
  for (std::size_t i = 0; i < numbers.size(); ++i) row[static_cast<std::int64_t>(i)].fill_(numbers[i]);
}

// JSON has no NaN.
Rows rows_of(const json& saved) {
  Rows rows;
  for (const json& row : saved) {
    rows.emplace_back();
    for (const json& number : row)
      rows.back().push_back(number.is_null() ? std::nan("") : number.get<double>());
  }
  return rows;
}

}  // namespace

/// In order.
struct SavedNumbers {
  Rows sums;     // of updates that all stages have made, and whose norm still clips one
  Rows own;      // what this stage has added to those of updates that stage 0 has yet to make
  Rows results;  // of the steps that are not complete, and of the last one that is
};

std::vector<StateSlice> WeightVersions::state() const {
  std::vector<StateSlice> state = state_of(stage_.last_local(), stage_.slices());
  if (endless_.update_every > 1 && windows_ > 0) {  // nothing is being added up before the first step
    for (StateSlice& slice : state) slice.pending = slice.purpose == Purpose::gradients;
  }
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

// The next stage's, whose backward is in an earlier step than this stage's.
std::vector<InFlight> WeightVersions::in_flight() {
  std::vector<InFlight> tensors;
  for (const auto& [id, slot] : slots_.alive()) {
    if (slot.grad_of_output == kNoBuffer) continue;
    const std::int64_t behind = windows_ * endless_.microbatches - id.first;
    tensors.push_back({fmt::format("stage {}, gradient of the output of the micro-batch {} back",
                                   endless_.share.stage, behind),
                       stage_.grad(slot.grad_of_output)});
  }
  return tensors;
}

// [anchor: what-is-on-its-way]
// Numbers are few and go into the manifest. Sums of an update are complete when stage 0 has made it: until
// then each stage says what it has added itself.
std::string WeightVersions::pending() {
  if (windows_ == 0) return "{}";  // it has been filled by no step yet
  const std::int64_t common = endless_.updates_after(0, windows_);
  Rows own, sums, results;
  for (std::int64_t u = common; u < updates_; ++u) own.push_back(row_of(own_sums_[u]));
  for (std::int64_t u = std::max<std::int64_t>(0, common - endless_.norm_lag); u < common; ++u) {
    if (!endless_.share.first) break;
    summed_[u].wait();
    sums.push_back(row_of(sums_[u]));
  }
  for (std::int64_t step = windows_ - 1 - endless_.result_lag; step < windows_; ++step)
    results.push_back(row_of(results_[step]));
  json of_stages = json::array();
  for (const std::string& text : gather_strings(context_.comm, json(own).dump()))
    of_stages.push_back(json::parse(text));
  const std::int64_t waiting = context_.shape.mesh.size(Axis::stages) - 1;
  return json{{"put_off", fmt::format("{} micro-batch{} of step {}, on the way through the stages", waiting,
                                      waiting == 1 ? "" : "es", since_ + windows_ - 1)},
              {kName,
               {{"layout", layout_of(endless_, options_, context_.shape)},
                {"since", since_},
                {"sums", sums},
                {"results", results},
                {"own", of_stages}}}}
      .dump();
}

// [anchor: on-its-way-again]
// Which buffer holds what follows from the list. Its content is restored, and what no checkpoint holds,
// activations, is computed again: forward with the version that the micro-batch had.
bool WeightVersions::resume(const ResumeFrom& from) {
  const json pending = json::parse(from.pending);
  const auto own = pending.find(kName);
  if (own == pending.end() || own->at("layout") != layout_of(endless_, options_, context_.shape) ||
      !from.last_batches) {
    from.restore();
    return pending.empty();
  }
  // From window kSteady on all are alike: a pipeline that has run for long is as one that has run for a few.
  const auto since = own->at("since").get<std::int64_t>();
  if (since < 0 || since >= context_.first_step) throw std::out_of_range("since");
  windows_ = std::min<std::int64_t>(context_.first_step - since,
                                    pipedream::Windows::kSteady + 2 + endless_.result_lag);
  since_ = context_.first_step - windows_;
  const std::vector<Done> last_window = follow_the_list();
  from.restore();
  const auto stage = static_cast<std::size_t>(endless_.share.stage);
  restore_numbers({rows_of(own->at("sums")), rows_of(own->at("own").at(stage)), rows_of(own->at("results"))});
  forward_again(last_window, from.last_batches());
  return true;
}

// Without executing it.
std::vector<WeightVersions::Done> WeightVersions::follow_the_list() {
  std::vector<Done> last;
  for (std::int64_t t = 0; t < windows_; ++t) {
    last.clear();
    for (const Action& action : endless_.windows.window(endless_.share.stage, t)) {
      last.push_back({action, slots_.next(action)});
      if (action.kind != Kind::step) continue;
      tags_[last.back().slot.next_weights] = action.version;
      ++updates_;
    }
  }
  stage_.move_newest(slots_.versions().rbegin()->second);
  return last;
}

void WeightVersions::restore_numbers(const SavedNumbers& saved) {
  const std::int64_t common = endless_.updates_after(0, windows_);
  for (std::size_t i = 0; i < saved.results.size(); ++i) {
    const std::int64_t step = windows_ - 1 - endless_.result_lag + static_cast<std::int64_t>(i);
    fill_row(results_[step], saved.results[i]);
  }
  // Stage 0 is the last to note what an update came to: the others have noted some of these already.
  const std::int64_t noted = std::max<std::int64_t>(0, updates_ - endless_.norm_lag);
  noted_ = std::max<std::int64_t>(0, common - endless_.norm_lag);
  if (static_cast<std::int64_t>(saved.sums.size()) > common) throw std::out_of_range("sums");
  std::int64_t next = common - static_cast<std::int64_t>(saved.sums.size());
  for (const std::vector<double>& row : saved.sums) {
    const std::int64_t update = next++;
    fill_row(sums_[update], row);
    if (update >= noted) continue;
    note_sums(update);
    sums_[update].zero_();
  }
  for (std::int64_t update = common; update < updates_; ++update) {
    fill_row(sums_[update], saved.own.at(static_cast<std::size_t>(update - common)));
    own_sums_[update].copy_(sums_[update]);
    summed_[update] = everyone_->all_reduce(sums_[update], {OpPurpose::sums});
  }
  at::Tensor made = context_.scalars.step;
  made.add_(updates_ - common);  // stage 0's are the manifest's
  send_result(windows_ - 1 - endless_.result_lag);
}

void WeightVersions::forward_again(const std::vector<Done>& last_window,
                                   std::span<const Batch> micro_batches) {
  const int stage = endless_.share.stage;
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
  return microbatch >=
         windows_ * endless_.microbatches - (context_.shape.mesh.size(Axis::stages) - 1 - stage);
}

}  // namespace sc
