// Fuzzes a checkpoint's manifest after its checksum, which is no secret and is put before the input here. An
// accepted manifest is written and read back, and must be equal. Does the same with the sums of one file on
// their way to the manifest.
#include "common/storage/checkpoint/manifest.h"

#include "tests/fuzz/support.h"

SC_FUZZ_TARGET(manifest) {
  using namespace sc::checkpoint;  // NOLINT
  using sc::fuzz::require;
  using sc::fuzz::taken;
  const std::string text = sc::fuzz::text_of(data, size);
  const std::string summed = "{\"xxh3\": \"" + hex_of(sum_of(sc::as_bytes(text))) + "\",\n" + text;
  if (const auto manifest = taken([&] { return manifest_of_text(summed, "M"); })) {
    (void)put_off_in(*manifest);
    require(manifest_of_text(text_of(*manifest), "written") == *manifest,
            "a manifest does not read back equal");
  }
  if (const auto sums = taken([&] { return sums_of_text(text, "S"); }))
    require(sums_of_text(text_of(*sums), "written") == *sums, "sums do not read back equal");
  return 0;
}
