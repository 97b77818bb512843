"""Lesson 05 on the real programs: exact updates end in lesson 00's file, delayed ones in a file of their
own; a slow link changes no bit; every place has its cap; and the host's memory grows as planned."""

import re

import support
from support import Run, once

LESSON = "05_offload"
STEPS = "--steps 20"
MODES = ("whole", "sharded")
LATE, EARLY = "update=delayed", "update=early"
MBPS = 1
LINK = f"--link-mbps {MBPS}"
# By number of ranks: settings and flags with exact updates. offload_test.cpp tests all of them on threads.
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
    return once(LESSON, world, f"{text} {STEPS} --verbose")


def reference(world):
    return support.lesson_00(world, STEPS)


def link_bytes(job, kind):
    """What rank 0 copies in a step."""
    operations = job.record()["ranks"][0]["measured_operations"]
    size = {"f32": 4, "f64": 8}
    return sum(op["count"] * op["elements"] * size[op["dtype"]] for op in operations if op["kind"] == kind)


def planned(plan, *places):
    return sum(sum(plan.get(place, {}).values()) for place in places)


class Bits(support.ProcessTest):
    @classmethod
    def setUpClass(cls):
        cls.delayed = {s: offload(2, s) for s in DELAYED}
        cls.exact = {(world, s): offload(world, s) for world, settings in EXACT.items() for s in settings}
        support.together([*cls.delayed.values(), *cls.exact.values()])

    def test_exact_updates_end_in_lesson_00s_file(self):
        self.expect_references({name: (job, reference(name[0])) for name, job in self.exact.items()})

    # Delayed updates give the same bits wherever parameters lie, whatever the piece, and however late copies
    # are.
    def test_delayed_updates_end_in_a_file_of_their_own(self):
        first, exact = self.delayed[LATE], self.expect_well(reference(2))
        self.expect_references({name: (job, first) for name, job in self.delayed.items()})
        self.expect_other_file(first.weights, exact.weights)
        # The third step is the first that computes with weights one update behind.
        same = [mine == loss for (mine, _), (loss, _) in zip(first.losses(), exact.losses())]
        self.assertEqual(same, [True, True] + [False] * 18)

    # Only lower bounds of times are tested, since a busy machine is slow. A step's copies down all end before
    # the next step's first copy up, unless updates are delayed. Times are of the whole run, because a step
    # may leave copies to the next.
    def test_a_slow_link_takes_its_time(self):
        exact, late = self.exact[2, LINK], self.delayed[f"{LATE} {LINK}"]
        down, up = (link_bytes(exact, kind) / 1e6 / MBPS for kind in ("to_host", "to_device"))
        self.assertGreater(min(down, up), 0.05)
        self.assertGreaterEqual(exact.record()["seconds"], 19 * (down + up))
        self.assertGreaterEqual(late.record()["seconds"], 19 * max(down, up))

    def test_what_the_start_lines_say(self):
        turns = (
            r"\nthe host's AdamW: 1000 threads a rank; with 2 ranks more than the \d+ cores here, so that "
            r"they take turns\n"
        )
        warm, many = f"{LATE} warm_steps=100", "--adam-threads 1000"
        self.expect_well(
            self.exact[2, warm], "\n  note     update=delayed: all 20 steps are exact, since warm_steps=100\n"
        )
        self.expect_well(
            self.delayed[LATE], "\nupdate=delayed: from step 2 on forward computes one update behind\n"
        )
        self.expect_well(self.exact[2, many], re.compile(turns))
        self.assertNotIn("take turns", self.exact[2, LINK].ended.out)


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
        support.together(cls.runs.values())

    def counts(self, when):
        early = self.runs["early", when]
        self.expect_same(early, self.runs["exact", when])
        found = early.record()["counts"]
        self.assertEqual(found["pieces_updated"] % 20, 0)
        return [found[name] for name in ("pieces_updated", "begun_before_the_norm", "made_again")]

    def test_where_nothing_clips_nothing_is_made_again(self):
        for when in support.chosen(("never", "off"), "never"):
            with self.subTest(when=when):
                updated, before, again = self.counts(when)
                self.assertGreater(before, updated // 2)  # nearly all, unless the machine is busy
                self.assertEqual(again, 0)

    # In a run that clips every step, updates begin before the norm is known only in the first step.
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
        self.expect_one_error(
            Run("06_infinity", 2, EARLY),
            64,
            '--set update=early: update: "early" is none of exact, delayed\n  fix: update takes choice: '
            "exact, delayed (default exact)",
        )


class Caps(support.ProcessTest):
    DEEP = "model.layers=8 {} --steps 2"

    def plan(self, lesson, settings=""):
        """Bytes of a rank's device; in the host's memory beside it."""
        ended = self.expect_well(support.run(lesson, 0, f"{self.DEEP.format(settings)} --plan --world 2"))
        found = dict(
            re.findall(r"\n  (total|total, pinned|total, host) +[\d.]+ [kM]?B +([\d,]+)(?=\n)", ended.out)
        )
        found = {name: int(value.replace(",", "")) for name, value in found.items()}
        return found["total"], found.get("total, pinned", 0) + found.get("total, host", 0)

    def test_a_cap_that_stops_04_lets_05_run(self):
        more, less = self.plan("04_zero3")[0], self.plan(LESSON)[0]
        self.assertLess(less, 0.9 * more)
        capped = f"{self.DEEP.format('')} --memory-cap {(more + less) // 2}"
        stopped = self.expect_one_error(
            Run("04_zero3", 2, capped),
            69,
            re.compile(
                r"--memory-cap \d\.\d\d MB: a rank would hold \d\.\d\d MB, (.*\n)*"
                r"  fix: one of these fits(.*\n?)*"
            ),
        )
        self.assertIn("\n  offload (lesson 05) -n 2  ", stopped.ended.errors[0])
        fits = self.expect_well(Run(LESSON, 2, capped)).record()
        self.assertEqual({rank["measured_bytes"]["total"] for rank in fits["ranks"]}, {less})

    # A cap on the host's memory refuses a run before any allocation, with the place and a cap that would be
    # enough.
    def test_a_cap_of_the_hosts_memory(self):
        for settings in support.chosen(("", LATE, EARLY), EARLY):
            device, host = self.plan(LESSON, settings)
            self.assertGreater(host, 900_000)
            said = re.compile(
                rf"--host-cap \d+\.\d\d kB: a rank would hold \d+\.\d\d [kM]B in the host's memory\n"
                rf"  fix: --host-cap {host}, or a strategy that holds less there"
            )
            text = f"{self.DEEP.format(settings)} --host-cap"
            self.expect_ends(
                {f"{text} 900000": (69, said), f"{text} {host} --memory-cap {device}": (0, ())}, LESSON, 2
            )


class NotFinite(support.ProcessTest):
    def test_it_stops_as_lesson_04_does(self):
        said = (
            r"step 2: the gradient is not finite, first seen in unit 3; it came from rank 0's "
            r"own micro-batches\n  fix: .*"
        )
        late = (LESSON, f"{LATE} warm_steps=1")
        cases = support.chosen(
            (("04_zero3", ""), (LESSON, ""), (LESSON, "parameters=sharded"), late, (LESSON, EARLY)),
            ("04_zero3", ""),
            (LESSON, ""),
            late,
        )
        jobs = self.expect_ends(
            {
                (lesson, 2, f"{settings} --steps 4 --inject nan@0,2"): (70, re.compile(said))
                for lesson, settings in cases
            },
            at_once=2,
        )
        self.assertEqual({len(job.losses()) for job in jobs.values()}, {2})
        self.assertEqual(len({tuple(job.ended.errors) for job in jobs.values()}), 1)


class Memory(support.ProcessTest):
    """The memory of models of 15 M and 40 M parameters, as the kernel counts it, with the device's bytes."""

    MODEL = "model.width=512 model.heads=8 model.vocab=4096 batch.global=1"

    def beside_the_device(self, layers, settings):
        """(what the kernel counts beyond the plan's device, what the plan holds beside it)"""
        text = f"{self.MODEL} model.layers={layers} {settings} --steps 3 --sample 0 --page off"
        ended, plans, peaks = support.peak_memory(LESSON, 1, text)
        self.expect_well(ended)
        return peaks[0] - plans[0]["total"], planned(plans[0], "pinned", "host")

    # A second copy anywhere, or a size rounded up by the allocator of pinned memory, would exceed the plan by
    # 2 %.
    def test_the_host_holds_what_the_plan_says(self):
        late = f"{LATE} warm_steps=1 parameters=sharded"
        for settings in support.chosen(("", late, EARLY), late):
            small, large = (self.beside_the_device(layers, settings) for layers in (4, 12))
            self.assertGreater(large[1], 500e6)
            more, expected = (a - b for a, b in zip(large, small))
            self.assertAlmostEqual(more / expected, 1, delta=0.02, msg=settings)


if __name__ == "__main__":
    support.main()
