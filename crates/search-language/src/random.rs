//! Seeded randomness for tests: a failure can be repeated.

/// A linear congruential generator with the constants of Knuth's MMIX. Its upper bits are good enough for test texts.
pub struct TestRandom(u64);

#[expect(clippy::unwrap_used, reason = "tests")]
impl TestRandom {
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    pub fn draw_below(&mut self, limit: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        usize::try_from(self.0 >> 33).unwrap() % limit
    }

    /// A text of up to `pieces_max` pieces: mostly from `pieces`, one in five any character at all.
    pub fn random_text(&mut self, pieces: &[&str], pieces_max: usize) -> String {
        let count = self.draw_below(pieces_max + 1);
        (0..count).map(|_| self.random_piece(pieces)).collect()
    }

    fn random_piece(&mut self, pieces: &[&str]) -> String {
        if self.draw_below(5) > 0 {
            return pieces[self.draw_below(pieces.len())].to_owned();
        }
        let number = u32::try_from(self.draw_below(0x3_0000)).unwrap();
        char::from_u32(number).unwrap_or('\u{301}').to_string()
    }
}
