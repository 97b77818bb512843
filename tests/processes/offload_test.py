"""Lesson 05 on the real programs: exact updates end in lesson 00's file, delayed ones in a file of their
own; a slow link changes no bit; every place has its cap; and the host's memory grows as planned."""

import filecmp
import re

import support

LESSON = "05_offload"
STEPS = ["--steps", "20"]
MODES = ("whole", "sharded")
LATE, EARLY = "update=delayed", "update=early"
MBPS = 1
LINK = f"--link-mbps {MBPS}"
# ranks: settings, and flags, whose updates are exact; offload_test.cpp has all of them on threads
EXACT = {
    1: [f"parameters={mode}" for mode in MODES],
    2: [f"parameters={mode}" for mode in MODES]
    + [LINK, f"{LATE} warm_steps=100", "--adam-threads 1000", EARLY, f"{EARLY} resident=3 {LINK}"],
    3: [f"parameters={mode} piece=1000" for mode in MODES]
    + [
        "parameters=sharded prefetch=0 overlap=off activations=recompute",
        f"{EARLY} parameters=sharded piece=1000",
    ],
}
EXACT = support.chosen(
    {**EXACT, 2: support.chosen(EXACT[2], LINK, f"{LATE} warm_steps=100", "--adam-threads 1000")}, 2
)
DELAYED = [LATE, f"{LATE} parameters=sharded piece=1000", f"{LATE} {LINK}"]  # on two ranks
DELAYED = support.chosen(DELAYED, LATE, f"{LATE} {LINK}")


def offload(world, text):
    """A run of 20 steps. text: settings, then flags."""
    settings, dashes, flags = text.partition("--")
    return support.Run(LESSON, world, settings, *(dashes + flags).split(), *STEPS, "--verbose")


def link_bytes(run, kind):
    """What rank 0 copies in a step."""
    operations = run.record()["ranks"][0]["measured_operations"]
    size = {"f32": 4, "f64": 8}
    return sum(op["count"] * op["elements"] * size[op["dtype"]] for op in operations if op["kind"] == kind)


def planned(plan, *places):
    return sum(sum(plan.get(place, {}).values()) for place in places)


class Bits(support.ProcessTest):
    @classmethod
    def setUpClass(cls):
        cls.references = {
            world: support.Run(
                "00_one_device", 0, "", "--virtual-ranks", str(world), "--reduce-every", "micro_batch", *STEPS
            )
            for world in EXACT
        }
        cls.exact = {(world, s): offload(world, s) for world, settings in EXACT.items() for s in settings}
        cls.delayed = {("delayed", s): offload(2, s) for s in DELAYED}
        cls.runs = {**cls.exact, **cls.delayed}
        cls.ended = support.side_by_side(
            {name: run.job for name, run in {**cls.references, **cls.runs}.items()}, at_once=2
        )

    def test_all_end_well_and_as_predicted(self):
        for name, ended in self.ended.items():
            with self.subTest(name=name):
                self.assertEqual((ended.code, ended.err), (0, ""), ended)
        for name, run in self.runs.items():
            with self.subTest(name=name):
                self.assertTrue(run.record()["as_predicted"])

    def test_exact_updates_end_in_lesson_00s_file(self):
        for (world, settings), run in self.exact.items():
            with self.subTest(world=world, settings=settings):
                self.assertTrue(filecmp.cmp(run.weights, self.references[world].weights, shallow=False))
                self.assertEqual(run.losses(), self.references[world].losses())

    # Wherever parameters lie, whatever a piece is, however late copies are: one update behind is one rule.
    def test_delayed_updates_end_in_a_file_of_their_own(self):
        first, *others = self.delayed.values()
        self.assertFalse(
            filecmp.cmp(first.weights, self.references[2].weights, shallow=False),
            "the comparisons could not fail",
        )
        for run in others:
            self.assertTrue(filecmp.cmp(run.weights, first.weights, shallow=False))
            self.assertEqual(run.losses(), first.losses())
        # The third step is the first that does not wait for the update before it.
        losses = [loss for loss, _ in self.references[2].losses()]
        same = [mine == loss for (mine, _), loss in zip(first.losses(), losses)]
        self.assertEqual(same, [True, True] + [False] * 18)

    # Bounds from below alone: a busy machine is slow. All of a step's copies down end before the next
    # one's first copy up, unless that is an update behind. Of the whole run: a step may leave copies to
    # the next.
    def test_a_slow_link_takes_its_time(self):
        exact, late = self.exact[2, LINK], self.delayed["delayed", f"{LATE} {LINK}"]
        down, up = (link_bytes(exact, kind) / 1e6 / MBPS for kind in ("to_host", "to_device"))
        self.assertGreater(min(down, up), 0.05)
        self.assertGreaterEqual(exact.record()["seconds"], 19 * (down + up))
        self.assertGreaterEqual(late.record()["seconds"], 19 * max(down, up))

    def test_what_the_start_lines_say(self):
        said = self.ended[2, f"{LATE} warm_steps=100"].out
        self.assertIn("\n  note     update=delayed: all 20 steps are exact, since warm_steps=100\n", said)
        self.assertIn(
            "\nupdate=delayed: from step 2 on forward computes one update behind\n",
            self.ended["delayed", LATE].out,
        )
        said = self.ended[2, "--adam-threads 1000"].out
        self.assertRegex(
            said,
            r"\nthe host's AdamW: 1000 threads a rank; with 2 ranks more than the \d+ cores here, "
            r"so that they take turns\n",
        )
        self.assertNotIn("take turns", self.ended[2, LINK].out)


class Early(support.ProcessTest):
    """How many pieces the host has updated before the norm was known, and which of them again."""

    CLIPS = support.chosen(
        {
            "never": "optim.clip=100",
            "always": "optim.clip=0.001",
            "now and then": "optim.clip=0.7",
            "off": "optim.clip=0",
        },
        "never",
        "now and then",
    )

    @classmethod
    def setUpClass(cls):
        cls.runs = {
            (update, when): offload(2, f"update={update} {clip}")
            for when, clip in cls.CLIPS.items()
            for update in ("exact", "early")
        }
        cls.ended = support.side_by_side({name: run.job for name, run in cls.runs.items()}, at_once=2)

    def counts(self, when):
        early, exact = self.runs["early", when], self.runs["exact", when]
        self.assertTrue(filecmp.cmp(early.weights, exact.weights, shallow=False))
        self.assertEqual(early.losses(), exact.losses())
        found = early.record()["counts"]
        self.assertEqual(found["pieces_updated"] % 20, 0)
        return [found[name] for name in ("pieces_updated", "begun_before_the_norm", "made_again")]

    def test_where_nothing_clips_nothing_is_made_again(self):
        for when in support.chosen(("never", "off"), "never"):
            with self.subTest(when=when):
                updated, before, again = self.counts(when)
                self.assertGreater(before, updated // 2)  # nearly all, unless the machine is busy
                self.assertEqual(again, 0)

    # After the first step nothing is begun before the norm.
    @support.in_all_settings
    def test_where_all_steps_are_clipped_one_is_made_again(self):
        updated, before, again = self.counts("always")
        self.assertEqual(before, again)
        self.assertTrue(0 < again <= updated // 20, (updated, again))

    def test_where_some_are_clipped_both_happen(self):
        updated, before, again = self.counts("now and then")
        self.assertTrue(0 < again < before <= updated, (updated, before, again))
        norms = [norm for _, norm in self.runs["early", "now and then"].losses()]
        self.assertTrue(min(norms) < 0.7 < max(norms), norms)

    def test_without_a_guess_nothing_is_counted(self):
        self.assertNotIn("counts", self.runs["exact", "never"].record())

    @support.in_all_settings
    def test_without_a_norm_all_is_counted(self):
        self.assertIn(
            "made_again", self.runs["exact", "off"].record()["counts"]
        )  # whose update needs no norm

    def test_another_lesson_has_no_room_for_it(self):
        ended = support.run("06_infinity", 2, "--set", EARLY, "--out", support.new_path("out"))
        self.expect_one_error(
            ended,
            64,
            '--set update=early: update: "early" is none of exact, delayed\n  fix: update takes choice: exact, delayed (default exact)',
        )


class Caps(support.ProcessTest):
    DEEP = ["--set", "model.layers=8", "--steps", "2"]

    def plan(self, lesson, *flags):
        """Bytes of a rank's device; in the host's memory beside it."""
        ended = support.run(lesson, 0, *self.DEEP, "--plan", "--world", "2", *flags)
        self.assertEqual((ended.code, ended.err), (0, ""), ended)
        found = dict(
            re.findall(r"\n  (total|total, pinned|total, host) +[\d.]+ [kM]?B +([\d,]+)(?=\n)", ended.out)
        )
        found = {name: int(value.replace(",", "")) for name, value in found.items()}
        return found["total"], found.get("total, pinned", 0) + found.get("total, host", 0)

    def test_a_cap_that_stops_04_lets_05_run(self):
        more, less = self.plan("04_zero3")[0], self.plan(LESSON)[0]
        self.assertLess(less, 0.9 * more)
        cap = ["--memory-cap", str((more + less) // 2)]
        stopped = support.run("04_zero3", 2, *self.DEEP, *cap, "--out", support.new_path("out"))
        self.expect_one_error(
            stopped,
            69,
            re.compile(
                r"--memory-cap \d\.\d\d MB: a rank would hold \d\.\d\d MB, (.*\n)*"
                r"  fix: one of these fits(.*\n?)*"
            ),
        )
        self.assertIn("\n  offload (lesson 05) -n 2  ", stopped.errors[0])
        out = support.new_path("out")
        fits = support.run(LESSON, 2, *self.DEEP, *cap, "--out", out)
        self.assertEqual((fits.code, fits.err), (0, ""), fits)
        self.assertEqual({rank["measured_bytes"]["total"] for rank in support.record(out)["ranks"]}, {less})

    # Refused before anything is allocated, with the place and the cap that is enough.
    def test_a_cap_of_the_hosts_memory(self):
        for settings in support.chosen(([], ["--set", LATE], ["--set", EARLY]), ["--set", EARLY]):
            device, host = self.plan(LESSON, *settings)
            self.assertGreater(host, 900_000)
            said = re.compile(
                rf"--host-cap \d+\.\d\d kB: a rank would hold \d+\.\d\d [kM]B in the host's memory\n"
                rf"  fix: --host-cap {host}, or a strategy that holds less there"
            )
            flags = [*self.DEEP, *settings, "--out", support.new_path("out")]
            self.expect_one_error(support.run(LESSON, 2, *flags, "--host-cap", "900000"), 69, said)
            fits = support.run(LESSON, 2, *flags, "--host-cap", str(host), "--memory-cap", str(device))
            self.assertEqual((fits.code, fits.err), (0, ""), fits)


class NotFinite(support.ProcessTest):
    def test_it_stops_as_lesson_04_does(self):
        poisoned = ["--steps", "4", "--inject", "nan@0,2"]
        late = f"{LESSON} {LATE} warm_steps=1"
        names = support.chosen(
            ("04_zero3", LESSON, f"{LESSON} parameters=sharded", late, f"{LESSON} {EARLY}"),
            "04_zero3",
            LESSON,
            late,
        )
        runs = {
            name: support.Run(name.split()[0], 2, " ".join(name.split()[1:]), *poisoned) for name in names
        }
        ended = support.side_by_side({name: run.job for name, run in runs.items()}, at_once=2)
        for name, run in runs.items():
            with self.subTest(name=name):
                self.expect_one_error(
                    ended[name],
                    70,
                    re.compile(
                        r"step 2: the gradient is not finite, first seen in unit 3; it came from rank 0's "
                        r"own micro-batches\n  fix: .*"
                    ),
                )
                self.assertEqual(ended[name].errors, ended["04_zero3"].errors)
                self.assertEqual(len(run.losses()), 2)


class Memory(support.ProcessTest):
    """Of models of 15 M and 40 M parameters, as the kernel counts it, with the device's bytes."""

    MODEL = ["--set=model.width=512", "--set=model.heads=8", "--set=model.vocab=4096", "--set=batch.global=1"]

    def beside_the_device(self, layers, *settings):
        """(what the kernel counts beyond the plan's device, what the plan holds beside it)"""
        ended, plans, peaks = support.peak_memory(
            LESSON,
            1,
            *self.MODEL,
            f"--set=model.layers={layers}",
            *settings,
            "--steps",
            "3",
            "--sample",
            "0",
            "--page",
            "off",
        )
        self.assertEqual((ended.code, ended.err), (0, ""), ended)
        return peaks[0] - plans[0]["total"], planned(plans[0], "pinned", "host")

    # A second copy anywhere, or a size rounded up by the allocator of pinned memory, is more than 2 %.
    def test_the_host_holds_what_the_plan_says(self):
        late = ["--set=update=delayed", "--set=warm_steps=1", "--set=parameters=sharded"]
        for settings in support.chosen(([], late, ["--set=update=early"]), late):
            small, large = (self.beside_the_device(layers, *settings) for layers in (4, 12))
            self.assertGreater(large[1], 500e6)
            more, expected = (a - b for a, b in zip(large, small))
            self.assertAlmostEqual(more / expected, 1, delta=0.02, msg=settings)


if __name__ == "__main__":
    support.main()
