#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>

#include <cmath>
#include <limits>
#include <tuple>
#include <vector>

#include "lessons/11_combined/exercise/three_groups.h"
#include "tests/exercises/check.h"
#include "tests/exercises/world.h"

namespace sc::exercise {
namespace {

/// A rank's coordinates on the axes of the mesh.
struct Place {
  Place(const MeshPlace& mesh, int of)
      : rank(of),
        stage(of / (mesh.tensor * mesh.data)),
        replica(of / mesh.tensor % mesh.data),
        part(of % mesh.tensor),
        end(mesh.stages > 1 && (stage == 0 || stage + 1 == mesh.stages)) {}
  int rank, stage, replica, part;
  bool end;
};

int ranks_of(const MeshPlace& mesh) { return mesh.stages * mesh.data * mesh.tensor; }
MeshPlace at_rank(MeshPlace mesh, int rank) {
  mesh.rank = rank;
  return mesh;
}
std::string to_text(const MeshPlace& mesh) {
  return "mesh " + std::to_string(mesh.stages) + "x" + std::to_string(mesh.data) + "x" +
         std::to_string(mesh.tensor);
}
std::string rank_text(int rank) { return "rank " + std::to_string(rank); }

// Whether two ranks share a tensor group, or a data group.
bool share_tensor(const Place& a, const Place& b) { return a.stage == b.stage && a.replica == b.replica; }
bool share_data(const Place& a, const Place& b) { return a.stage == b.stage && a.part == b.part; }
bool share_ends(const Place& a, const Place& b) {
  return a.end && b.end && a.replica == b.replica && a.part == b.part;
}

// In which way ranks a and b differ, in words.
std::string apart(const Place& a, const Place& b) {
  if (a.part != b.part) return "have different parts of each matrix";
  return a.replica != b.replica ? "read different rows" : "are of different stages";
}

/// One kind of group: its colors by rank, and which ranks share one.
struct Group {
  const char* name;
  int MeshColors::*color;
  bool (*share)(const Place& a, const Place& b);
};

void check_colors(const MeshPlace& mesh, const Group& group) {
  std::vector<int> colors;
  for (int rank = 0; rank < ranks_of(mesh); ++rank)
    colors.push_back(colors_of(at_rank(mesh, rank)).*group.color);
  const auto text = [&](int rank) {
    return rank_text(rank) + " has color " + std::to_string(colors[static_cast<std::size_t>(rank)]);
  };
  const std::string of = to_text(mesh) + ", " + group.name + ": ";
  for (int i = 0; i < ranks_of(mesh); ++i) {
    const Place a(mesh, i);
    const int mine = colors[static_cast<std::size_t>(i)];
    require(mine >= 0 || !group.share(a, a), of + text(i) + ", and must be in a group");
    require(mine == -1 || group.share(a, a), of + text(i) + ", and is in no group: -1");
    for (int j = i + 1; j < ranks_of(mesh) && mine >= 0; ++j) {
      const Place b(mesh, j);
      const bool together = group.share(a, b), equal = mine == colors[static_cast<std::size_t>(j)];
      require(together || !equal,
              of + text(i) + " and so has rank " + std::to_string(j) + ", but they " + apart(a, b));
      require(!together || equal, of + text(i) + " and " + text(j) + ", and they belong together");
    }
  }
}

constexpr Group kGroups[] = {{"tensor groups", &MeshColors::tensor, share_tensor},
                             {"data groups", &MeshColors::data, share_data},
                             {"ends", &MeshColors::ends, share_ends}};

/// One of a rank's gradients: how many elements it has, and whose summands belong in its slice.
struct Kind {
  const char* name;
  std::int64_t a_slice;  // elements, of each data rank
  bool (*belongs)(const Place& mine, const Place& summand);
};
constexpr Kind kMatrices{"matrices", 12, [](const Place& a, const Place& b) { return share_data(a, b); }};
constexpr Kind kNorms{"norms", 6, [](const Place& a, const Place& b) { return a.stage == b.stage; }};
constexpr Kind kTied{"tied", 8, [](const Place& a, const Place& b) {
                       return a.part == b.part && (a.stage == b.stage || (a.end && b.end));
                     }};

// Element i of rank r's summand is (i + 1) 8^r: a sum, exact in fp64, says how often it counts each rank.
constexpr std::int64_t kBase = 8;
SlicedGradient gradient_of(const Kind& kind, const MeshPlace& mesh) {
  const std::int64_t n = kind.a_slice * mesh.data;
  SlicedGradient gradient{at::empty({n}, at::kDouble),
                          at::full({kind.a_slice}, std::numeric_limits<double>::quiet_NaN(), at::kDouble)};
  for (std::int64_t i = 0; i < n; ++i)
    gradient.full.mutable_data_ptr<double>()[i] = static_cast<double>(i + 1) * std::pow(kBase, mesh.rank);
  return gradient;
}

std::string relation(const Place& mine, const Place& other) {
  if (share_tensor(mine, other)) return "of its tensor group";
  if (share_data(mine, other)) return "of its data group";
  if (mine.stage == other.stage) return "of its stage, with other rows and another part";
  return share_ends(mine, other) ? "at the other end" : "of another stage";
}

// What is wrong with one element of a slice; empty if nothing is.
std::string wrong_sum(const Kind& kind, const MeshPlace& mesh, double value, std::int64_t element) {
  const double counts = value / static_cast<double>(element + 1);
  if (std::isnan(value)) return "was not written";
  if (counts < 0 || counts != std::floor(counts) || counts >= std::pow(kBase, ranks_of(mesh)))
    return "is not a sum of this data rank's elements";
  auto left = static_cast<std::int64_t>(counts);
  const Place mine(mesh, mesh.rank);
  for (int r = 0; r < ranks_of(mesh); ++r, left /= kBase) {
    const Place other(mesh, r);
    const std::int64_t times = left % kBase;
    const bool belongs = kind.belongs(mine, other);
    if (times == (belongs ? 1 : 0)) continue;
    const std::string who = r == mesh.rank ? "its own" : rank_text(r) + "'s, " + relation(mine, other);
    if (times == 0) return "lacks " + who;
    return belongs ? "counts " + std::to_string(times) + " times " + who : "has in it " + who;
  }
  return "";
}

/// Sums the gradients of one rank in a step.
StageGradients sum_on_rank(const MeshPlace& mesh, RecordingCommunicator& comm) {
  comm.set_phase("setup");
  const MeshColors colors = colors_of(mesh);
  const std::unique_ptr<Communicator> tensor = comm.split(colors.tensor), data = comm.split(colors.data),
                                      ends = comm.split(colors.ends);
  StageGradients gradients{gradient_of(kMatrices, mesh), gradient_of(kNorms, mesh), {}};
  const Place place(mesh, mesh.rank);
  if (place.end || mesh.stages == 1) gradients.tied = gradient_of(kTied, mesh);
  comm.set_phase("train");
  sum_gradients(gradients, {tensor.get(), data.get(), ends.get()});
  return gradients;
}

// Checks the bytes over one of the groups; no two groups of this mesh have ranks equally far apart.
void check_bytes(const CommPlan& issued, const MeshPlace& mesh, const char* name, int ranks, int stride,
                 const std::vector<Operation>& enough) {
  Bytes sent, most;
  for (const auto& [op, count] : issued.count)
    if (to_int(op.ranks) == ranks && op.stride == stride) sent += wire_bytes(op) * count;
  for (const Operation& op : enough) most += wire_bytes(op);
  require(sent <= most, to_text(mesh) + ": right, but " + rank_text(mesh.rank) + " sends " +
                            std::to_string(sent.value()) + " bytes over " + name + "; " +
                            std::to_string(most.value()) + " are enough");
}

void check_cost(const CommPlan& issued, const MeshPlace& mesh) {
  const auto op = [](CommKind kind, std::int64_t elements, int ranks) {
    return Operation{kind, DType::f64, Elements(elements), WorldSize{ranks}};
  };
  const int data = mesh.data, t = mesh.tensor;
  std::vector<Operation> scatters;
  for (const Kind& kind : {kMatrices, kNorms, kTied})
    scatters.push_back(op(CommKind::reduce_scatter, kind.a_slice * data, data));
  check_bytes(issued, mesh, "its tensor group", t, 1, {op(CommKind::all_reduce, kNorms.a_slice * data, t)});
  check_bytes(issued, mesh, "its data group", data, t, scatters);
  check_bytes(issued, mesh, "the ends", 2, (mesh.stages - 1) * data * t,
              {op(CommKind::all_reduce, kTied.a_slice, 2)});
}

void check_mesh(const MeshPlace& mesh, bool delays) {
  const int ranks = ranks_of(mesh);
  World world(ranks, delays);
  const std::vector<StageGradients> found = world.each([&](RecordingCommunicator& comm) {
    return sum_on_rank(at_rank(mesh, static_cast<int>(comm.rank())), comm);
  });
  for (int rank = 0; rank < ranks; ++rank) {
    const MeshPlace here = at_rank(mesh, rank);
    const Place place(mesh, rank);
    const std::string where =
        to_text(mesh) + (delays ? " with random delays" : "") + ", " + rank_text(rank) + ": ";
    const StageGradients& gradients = found[static_cast<std::size_t>(rank)];
    const bool holds_tied = place.end || mesh.stages == 1;
    for (const auto& [kind, slice, held] : {std::tuple(kMatrices, gradients.matrices.slice, true),
                                            {kNorms, gradients.norms.slice, true},
                                            {kTied, gradients.tied.slice, holds_tied}})
      for (std::int64_t i = 0; held && i < kind.a_slice; ++i) {
        const std::string wrong =
            wrong_sum(kind, here, slice.const_data_ptr<double>()[i], place.replica * kind.a_slice + i);
        require(wrong.empty(), where + "the slice of `" + kind.name + "` " + wrong);
      }
  }
  if (mesh.stages != 2 || mesh.data != 2 || mesh.tensor != 2) return;
  for (int rank = 0; rank < ranks; ++rank) check_cost(world.issued(rank), at_rank(mesh, rank));
}

std::string check() {
  for (int stages = 1; stages <= 3; ++stages)
    for (int data = 1; data <= 3; ++data)
      for (int tensor = 1; tensor <= 3; ++tensor)
        for (const Group& group : kGroups) check_colors({stages, data, tensor, 0}, group);
  for (const MeshPlace& mesh :
       {MeshPlace{1, 2, 2, 0}, MeshPlace{2, 1, 2, 0}, MeshPlace{2, 2, 2, 0}, MeshPlace{3, 2, 1, 0}})
    check_mesh(mesh, false);
  check_mesh({2, 2, 2, 0}, true);
  return "27 meshes have the right groups; on four of them every slice counts each rank once that it should, "
         "and no other";
}

}  // namespace

const Exercise kExercise{
    "three_groups",
    "take a rank apart into stage, replica and tensor rank, and ask of each group which of the three its "
    "ranks share. Of the sums: a slice can only count what was in `full` when it was cut",
    check};

}  // namespace sc::exercise
