// Tests lesson 11's exercise: each question has one answer, and the bytes between nodes are those of the
// formulas in its README.
#include "tests/exercises/mesh.h"

#include <gtest/gtest.h>

#include "tests/exercises/check.h"
#include "tests/support/answers.h"

namespace sc::exercise {
namespace {

constexpr MeshCase kFew = kMeshCases[0], kMany = kMeshCases[1], kLarge = kMeshCases[2];

TEST(Mesh, OneAnswerEach) {
  const char* answers[] = {"2x1x4", "1x2x4", "2x1x4"};
  for (std::size_t i = 0; i < kMeshCases.size(); ++i) {
    const std::vector<Laid> fit = all_that_fit(kMeshCases[i]);
    ASSERT_GE(fit.size(), 2U);
    EXPECT_EQ(fit[0].mesh, answers[i]);
    EXPECT_GT(fit[1].sent(), fit[0].sent());
    for (const char* mesh :
         {"1x1x8", "1x2x4", "1x4x2", "1x8x1", "2x1x4", "2x2x2", "2x4x1", "4x1x2", "4x2x1", "8x1x1"})
      EXPECT_EQ(missed(kMeshCases[i], mesh).empty(), std::string(mesh) == answers[i])
          << missed(kMeshCases[i], mesh);
  }
}

// A mesh whose stages meet between the nodes sends a message's bytes there and back once per token, whatever
// is inside the nodes.
TEST(Mesh, StagesSendTokens) {
  const MeshCase small{.layers = 8, .heads = 8, .width = 512, .rows = 64, .micro = 2};
  const std::int64_t tokens = small.rows * 1024, tied = 50'304 * small.width;
  for (const char* mesh : {"2x1x4", "2x2x2", "2x4x1", "4x1x2", "4x2x1", "8x1x1"}) {
    const Laid laid = lay(small, mesh);
    EXPECT_EQ(laid.across.at("messages between stages").value(), 2 * 2 * tokens * small.width) << mesh;
    EXPECT_EQ(laid.across.at("the tied matrix's two ends").value(), 2 * 2 * tied) << mesh;
    EXPECT_FALSE(laid.across.contains("data groups")) << mesh;
    EXPECT_FALSE(laid.across.contains("tensor groups")) << mesh;
  }
}

// With one stage a data group's ring crosses twice: (D-1)/D of the group's part, as gradients and as
// parameters. The width fills all segments: nothing is padded.
TEST(Mesh, DataRanksSendParameters) {
  const MeshCase small{.layers = 8, .heads = 8, .width = 512, .rows = 64, .micro = 2};
  const std::int64_t d = small.width, cut = 50'304 * d + small.layers * (12 * d * d + 7 * d),
                     whole = 1024 * d + small.layers * 6 * d + 2 * d;
  for (const std::int64_t tensor : {4, 2}) {
    const Laid laid = lay(small, "1x" + std::to_string(8 / tensor) + "x" + std::to_string(tensor));
    const std::int64_t data = 8 / tensor;
    EXPECT_EQ(laid.across.at("data groups").value(), 2 * (cut + tensor * whole) * (data - 1) / data * 2 * 2)
        << tensor;
  }
}

TEST(Mesh, TensorGroupsInANodeSendNothing) {
  EXPECT_FALSE(lay(kFew, "1x2x4").across.contains("tensor groups"));
  EXPECT_GT(lay(kFew, "1x1x8").across.at("tensor groups"), Bytes(100'000'000'000));
}

TEST(Mesh, SaysWhatIsWrong) {
  test::expect_texts(
      {{missed(kFew, "1x2x4"),
        "1x2x4 fits and sends 6.26 GB between the nodes per step (data groups 6.26 GB); 951.09 MB are "
        "possible"},
       {missed(kMany, "2x1x4"),
        "2x1x4 fits and sends 12.90 GB between the nodes per step (messages between stages 12.58 GB, the "
        "tied matrix's two "
        "ends 321.95 MB); 6.26 GB are possible"},
       {missed(kLarge, "1x2x4"), "1x2x4 does not fit: rank 1 holds 24.37 GB of 22.00 GB (varianc..."},
       {missed(kFew, "2x2x3"), "2x2x3 makes 12 ranks, and there are 8"},
       {missed(kFew, "1x8x1"), "96 rows are no whole micro-batches of 24 on 8 data ranks"},
       {missed(kFew, "four"),
        "\"four\" is not stages x data x tensor, nor stages x data x context x tensor"}});
}

}  // namespace
}  // namespace sc::exercise
