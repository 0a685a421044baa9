//! Random numbers that are the same in every run, and distributions drawn by them.

/// Numbers that look like chance and are the same in every run.
pub struct Chance(u64);

impl Chance {
    pub fn new(seed: u64) -> Self {
        Chance(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15))
    }

    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^ (mixed >> 31)
    }

    /// From 0 up to, and without, 1.
    pub fn share(&mut self) -> f64 {
        f64::from(u32::try_from(self.next() >> 32).unwrap_or(0)) / 4_294_967_296.0
    }

    pub fn below(&mut self, count: usize) -> usize {
        usize::try_from(self.next() % count.max(1) as u64).unwrap_or(0)
    }

    /// Which of several, the first being given how likely each is in hundredths.
    pub fn pick(&mut self, hundredths: &[usize]) -> usize {
        let mut at = self.below(100);
        for (place, likely) in hundredths.iter().enumerate() {
            if at < *likely {
                return place;
            }
            at -= likely;
        }
        hundredths.len()
    }

    /// With this mean, as waits are.
    pub fn wait_ms(&mut self, mean_ms: i64) -> i64 {
        let longest = 40.0;
        let waits = -(1.0 - self.share()).ln();
        scaled(mean_ms, waits.min(longest))
    }

    pub fn shuffle<T>(&mut self, items: &mut [T]) {
        for place in (1..items.len()).rev() {
            items.swap(place, self.below(place + 1));
        }
    }
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_precision_loss,
    reason = "times of a few years in milliseconds"
)]
pub fn scaled(ms: i64, by: f64) -> i64 {
    (ms as f64 * by) as i64
}

/// The first of many are frequent, the last are rare.
pub struct Skewed(Vec<f64>);

impl Skewed {
    pub fn new(count: usize, exponent: f64) -> Self {
        let mut total = 0.0;
        let sums = (1..=count).map(|rank| {
            total += f64::from(u32::try_from(rank).unwrap_or(u32::MAX)).powf(-exponent);
            total
        });
        Skewed(sums.collect())
    }

    pub fn draw(&self, chance: &mut Chance) -> usize {
        let total = self.0.last().copied().unwrap_or(1.0);
        let at = chance.share() * total;
        self.0.partition_point(|sum| *sum <= at).min(self.0.len() - 1)
    }
}
