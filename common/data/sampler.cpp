#include "common/data/sampler.h"

#include <spdlog/fmt/fmt.h>

#include <algorithm>

#include "common/base/check.h"
#include "common/base/counter_random.h"

namespace sc {
namespace {

void fill_rows(const Rows& source, const std::vector<RowIndex>& rows, std::span<std::int64_t> tokens,
               std::span<std::int64_t> targets) {
  const auto length = static_cast<std::size_t>(source.format().sequence);
  std::size_t at = 0;
  for (const RowIndex row : rows) {
    source.fill(row, tokens.subspan(at, length), targets.subspan(at, length));
    at += length;
  }
}

}  // namespace

Permutation::Permutation(std::int64_t count, std::uint64_t key)
    : count_(static_cast<std::uint64_t>(count)), key_(key) {
  while ((std::uint64_t{1} << (2 * half_bits_)) < count_) ++half_bits_;
}

std::int64_t Permutation::value(std::int64_t i) const {
  constexpr std::uint64_t kRounds = 8;
  const std::uint64_t mask = (std::uint64_t{1} << half_bits_) - 1;
  auto x = static_cast<std::uint64_t>(i);
  do {
    std::uint64_t left = x >> half_bits_, right = x & mask;
    for (std::uint64_t round = 0; round < kRounds; ++round) {
      const std::uint64_t next = left ^ (mix64(mix64(key_ + round) ^ right) & mask);
      left = right;
      right = next;
    }
    x = left << half_bits_ | right;
  } while (x >= count_);
  return static_cast<std::int64_t>(x);
}

Sampler::Sampler(const Dataset& data, const Workload& workload, RowStart start)
    : train_(data.train()),
      validation_(data.validation()),
      batch_(workload.batch),
      start_(start),
      seed_(workload.seed),
      validation_rows_(workload.data.validation_rows) {
  if (batch_.global % batch_.micro != 0) {
    throw InputError(
        ExitCode::usage, "batch.global",
        fmt::format("{} rows are not a whole number of micro-batches of {}", batch_.global, batch_.micro),
        fmt::format("--set batch.global={}", round_up(batch_.global, batch_.micro)));
  }
}

RowIndex Sampler::row_at(std::int64_t position) const {
  const auto epoch = static_cast<std::uint64_t>(position / train_.count());
  return Permutation(train_.count(), mix64(seed_) ^ mix64(~epoch)).value(position % train_.count());
}

std::vector<RowIndex> Sampler::rows(std::int64_t step, std::int64_t j) const {
  std::vector<RowIndex> rows(static_cast<std::size_t>(batch_.micro));
  std::int64_t at = position(step) + j * batch_.micro;
  std::generate(rows.begin(), rows.end(), [&] { return row_at(at++); });
  return rows;
}

void Sampler::fill(std::int64_t step, std::int64_t j, std::span<std::int64_t> tokens,
                   std::span<std::int64_t> targets) const {
  fill_rows(train_, rows(step, j), tokens, targets);
}

std::int64_t Sampler::step_targets(std::int64_t step) const {
  if (train_.format().packing != Packing::pad_masked) return batch_.global * batch_.sequence;
  std::int64_t sum = 0;
  for (std::int64_t i = 0; i < batch_.global; ++i) sum += train_.targets(row_at(position(step) + i));
  return sum;
}

double Sampler::steps_per_epoch() const {
  return static_cast<double>(train_.count()) / static_cast<double>(batch_.global);
}

RowIndex Sampler::validation_row(std::int64_t k) const {
  // Dataset has checked that there are at least validation_rows_ rows, so no row comes twice.
  return k * validation_.count() / validation_rows_;
}

void Sampler::fill_validation(std::int64_t i, std::span<std::int64_t> tokens,
                              std::span<std::int64_t> targets) const {
  std::vector<RowIndex> rows;
  for (std::int64_t k = i * batch_.micro; k < std::min((i + 1) * batch_.micro, validation_rows()); ++k)
    rows.push_back(validation_row(k));
  fill_rows(validation_, rows, tokens, targets);
  const std::size_t filled = rows.size() * static_cast<std::size_t>(batch_.sequence);
  std::ranges::fill(tokens.subspan(filled), 0);
  std::ranges::fill(targets.subspan(filled), kNoTarget);
}

MicroBatchRun micro_batch_run(std::int64_t total, std::int64_t rank, std::int64_t ranks) {
  const std::int64_t size = ceil_div(total, ranks);
  return {rank * size, size};
}

}  // namespace sc
