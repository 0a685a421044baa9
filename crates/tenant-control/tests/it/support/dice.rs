//! Numbers that look as if they were drawn, and are the same in every run.

pub struct Dice(pub u64);

impl Dice {
    pub fn below(&mut self, end: usize) -> usize {
        // Knuth's MMIX; the high half is the random one.
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        usize::try_from(self.0 >> 33).expect("it fits") % end
    }

    /// A number from `start` to before `end`.
    pub fn between(&mut self, start: i64, end: i64) -> i64 {
        start + i64::try_from(self.below(usize::try_from(end - start).expect("a range"))).expect("it fits")
    }
}
