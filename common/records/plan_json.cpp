#include "common/records/plan_json.h"

#include "common/model/param_layout.h"
#include "common/records/json.h"

namespace sc {

Json json_of(const CommPlan& plan, int world) {
  Json json = Json::array();
  for (const auto& [op, count] : plan.count) {
    json.push_back({{"kind", name_of(op.kind)},
                    {"dtype", name_of(op.dtype)},
                    {"elements", op.elements.value()},
                    {"count", count}});
    if (to_int(op.ranks) != world) json.back()["ranks"] = to_int(op.ranks);
    if (op.stride != 1) json.back()["stride"] = op.stride;
    if (op.purpose != OpPurpose::none) json.back()["purpose"] = name_of(op.purpose);
    if (op.unit != kNoUnit) json.back()["unit"] = op.unit;
  }
  return json;
}

namespace {

Json json_of(const MemoryPlan& plan) {
  Json json = Json::array();
  for (const Buffer& item : plan.items())
    json.push_back({{"purpose", name_of(item.purpose)},
                    {"place", name_of(item.place)},
                    {"name", item.name},
                    {"formula", item.formula()},
                    {"bytes", item.bytes().value()}});
  return json;
}

// The elements of each unit, padded for the ranks of the data axis.
Json units_of(const RunShape& shape) {
  const ParamLayout layout(shape.workload.model, WorldSize{static_cast<int>(shape.mesh.size(Axis::data))});
  Json json = Json::array();
  for (int unit = 0; unit < layout.num_units(); ++unit) {
    const UnitLayout& of = layout.unit(unit);
    json.push_back({{"parameters", of.numel()}, {"elements", of.sharded_size}});
  }
  return json;
}

// Of each call the chunks of queries and of keys, of which none sees a later one.
void add_chunks_met(const ContextCut& cut, Json& json) {
  for (const AttentionCall& call : cut.calls(/*m=*/1)) {
    const auto chunk = [&](int of, std::int64_t i) { return cut.chunks_of(of)[static_cast<std::size_t>(i)]; };
    for (std::int64_t q = call.queries.begin; q < call.queries.end; ++q)
      for (std::int64_t k = 0; k < (call.causal ? q + 1 : call.keys.end); ++k)
        json.push_back({cut.rank, call.hop, chunk(cut.rank, q), chunk(cut.source(call.hop), k)});
  }
}

}  // namespace

std::string format_plan_json(const std::string& lesson, const RunShape& shape,
                             const std::vector<RankPlan>& ranks, const std::vector<std::string>& notes,
                             ContextCut cut) {
  const int world = static_cast<int>(to_int(shape.mesh.world())),
            last_unit = static_cast<int>(shape.workload.model.layers) + 1;
  Json json = {{"lesson", lesson},
               {"device", shape.device == DeviceKind::cpu ? "cpu" : "cuda"},
               {"communication", name_of(shape.comm)},
               {"world", world},
               {"stages", shape.mesh.size(Axis::stages)},
               {"micro_batches", micro_batches_of(shape)},
               {"units", units_of(shape)},
               {"ranks", Json::array()}};
  for (const Axis axis : {Axis::context, Axis::tensor})
    if (shape.mesh.size(axis) > 1)
      json[std::string(kAxes[static_cast<std::size_t>(axis)].name)] = shape.mesh.size(axis);
  if (!notes.empty()) json["notes"] = notes;
  for (cut.rank = 0; cut.ranks > 1 && cut.rank < cut.ranks; ++cut.rank) add_chunks_met(cut, json["pairs"]);
  for (const RankPlan& plan : ranks) {
    Json bytes, operations = json_of(plan.operations, world);
    for_each_place(
        [&](Place place) { bytes[std::string(name_of(place))] = plan.memory.total(place).value(); });
    std::size_t row = 0;  // the name in a run's messages
    for (const auto& [op, count] : plan.operations.count) operations[row++]["name"] = describe(op, last_unit);
    json["ranks"].push_back({{"rank", plan.ranks.first},
                             {"alike", plan.ranks.count},
                             {"bytes", std::move(bytes)},
                             {"bytes_sent", plan.sent().value()},
                             {"buffers", json_of(plan.memory)},
                             {"operations", std::move(operations)}});
    if (plan.ranks.stride > 1) json["ranks"].back()["stride"] = plan.ranks.stride;
  }
  return json.dump(1) + "\n";
}

}  // namespace sc
