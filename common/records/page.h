// page.html, which a run leaves to look at: a committed template with one line of data
// (common/records/page/). No torch.
#pragma once

#include <string>
#include <vector>

#include "common/memory/plan.h"
#include "common/model/param_layout.h"
#include "common/records/record.h"
#include "common/records/trace.h"
#include "common/watch/contents.h"

namespace sc {

/// What one rank did in the steps that the page shows, and what it had planned to hold.
struct RankMarks {
  std::vector<Trace::Step> steps;
  std::vector<Timeline::Span> spans;
  std::vector<OpSpan> operations;  // of the marked steps
  std::vector<ContentChange> content_changes;
};

/// A rank's part of a page, sent to rank 0 as a JSON object. `layout` is this rank's, with its parts of what
/// tensor ranks share.
std::string text_of(Rank rank, const RankMarks& marks, const Contents& contents, const MemoryPlan& plan,
                    const ParamLayout& layout);

/// The most spans and operations, over all ranks, that a page has room for. With more it shows one step; if
/// that is still too much, the first, the second and the last rank; and it says so.
inline constexpr std::size_t kMostMarks = 5'000;

struct Page {
  std::string question;  // of the lesson
  const RunRecord& record;
  const ParamLayout& layout;
  const std::vector<std::string>& ranks;  // text_of() of each rank
  Mesh mesh;
};
/// The page as HTML.
///   Errors  std::runtime_error if `frame` is not the template.
std::string html_of(const Page& page, const std::string& frame);

}  // namespace sc
