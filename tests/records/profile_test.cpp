// Tests what --profile prints and stores, from made-up numbers. tests/processes/gpu_zero_test.py measures on
// a GPU.
#include "common/records/profile.h"

#include <gtest/gtest.h>

#include "common/records/gpu_sensors.h"
#include "tests/support/answers.h"

namespace sc {
namespace {

// A made-up profile of two steps of 10 ms each.
Profile some_profile() {
  Profile p;
  p.steps = 2;
  p.step_milliseconds = 10;
  p.waited_milliseconds = 0.5;
  p.rows = {{.op = "product, forward", .milliseconds = 12, .flops = 6e12, .calls = 8, .alone = 9},
            {.op = "GELU", .milliseconds = 4, .bytes = 8e9, .calls = 4, .alone = 2},
            {.op = "attention", .milliseconds = 2, .flops = 5e11, .calls = 2}};
  p.communication = {{.kind = CommKind::all_reduce,
                      .milliseconds = 6,
                      .calls = 10,
                      .sent = Bytes(1'200'000'000),
                      .alone = 4.5}};
  p.product_rate = 7.5e14;
  p.memory_rate = 4e12;
  p.sensors = {1650, 691.4, 700};
  return p;
}

TEST(Profile, ShowsAMeanStepBesideItsBounds) {
  EXPECT_EQ(format_profile(some_profile()),
            "  time of a step by operation  ms     share   calls  rate       of its bound\n"
            "  product, forward              6.00  60.0 %      4   500 TF/s          75 %\n"
            "  GELU                          2.00  20.0 %      2  2.00 TB/s          50 %\n"
            "  attention                     1.00  10.0 %      1   250 TF/s  -\n"
            "  waits for communication       0.50   5.0 %\n"
            "  between operations            0.50   5.0 %\n"
            "  a step (mean of 2)           10.00\n"
            "  communication beside them  ms    calls  sent       rate      of its bound\n"
            "  all_reduce                 3.00      5  600.00 MB  200 GB/s          75 %\n"
            "  hidden behind compute      83 %\n"
            "  bounds, measured after the run: each product's shape alone (the best at 750 TF/s, which "
            "attention is "
            "held against), memory 4.00 TB/s, each sum over ranks with nothing beside it\n"
            "  SM clock 1650 MHz, 691 W of at most 700 (medians of the steps)\n");
}

TEST(Profile, OneRankHasNoCommunication) {
  Profile p = some_profile();
  p.communication.clear();
  p.waited_milliseconds = 0;
  const std::string text = format_profile(p);
  EXPECT_EQ(text.find("communication"), std::string::npos) << text;
  EXPECT_NE(text.find("between operations            1.00"), std::string::npos) << text;
}

TEST(Profile, SaysWhatItDoesNotKnow) {
  Profile p = some_profile();
  p.product_rate = p.memory_rate = 0;
  p.sensors = {};
  test::expect_parts(format_profile(p), {"products unknown", "memory unknown", "clock and power: not known"});
  p.steps = 0;
  EXPECT_EQ(format_profile(p),
            "  no step was profiled: the first ones are not, and this run had no others\n");
}

// The fake NVML knows one GPU, 0000:18:00.0, and each of its readings is 1 MHz and 1 mW above the one before.
TEST(GpuSensors, ReadClockPowerAndLimitOfTheGpuThatIsNamed) {
  const GpuSensors sensors("0000:18:00.0", STAGECRAFT_FAKE_NVML);
  EXPECT_EQ(sensors.sample(), (GpuSensors::Sample{1501, 600.001, 700}));
  EXPECT_EQ(sensors.sample(), (GpuSensors::Sample{1502, 600.002, 700}));
}

TEST(GpuSensors, KnowNothingOfAnotherGpuOrWithoutTheLibrary) {
  EXPECT_EQ(GpuSensors("0000:19:00.0", STAGECRAFT_FAKE_NVML).sample(), std::nullopt);
  EXPECT_EQ(GpuSensors("0000:18:00.0", "libnot-there.so.1").sample(), std::nullopt);
}

TEST(GpuSensors, MedianIsOfEachNumber) {
  EXPECT_EQ(median_of({}), std::nullopt);
  EXPECT_EQ(median_of({{3, 10, 700}, {1, 30, 700}, {2, 20, 700}}), (GpuSensors::Sample{2, 20, 700}));
}

}  // namespace
}  // namespace sc
