//! Distributions of values, from which percentiles are read.
//!
//! A few values are kept as they are, so that a small company can check its figures by hand. More of them are a DDSketch: a
//! value is counted in a bin whose bounds are within 1 % of its middle, so a percentile is off by at most that, however many
//! are added together. The bounds come from `sketches-ddsketch`. Its own store is an array with room for 128 bins at least; an
//! answer of 90 days by hour reads ten thousand sketches with a handful of values each, so here only bins that count something
//! are kept.

use std::cmp::Ordering;
use std::sync::LazyLock;

use sketches_ddsketch::Config;

use super::codec::PERCENTILES;

/// A percentile is at most this much larger or smaller than the true one.
pub const RELATIVE_ERROR: f64 = 0.01;

/// So many values are kept as they are.
pub const EXACT_MAX: usize = 20;

static BINS: LazyLock<Config> = LazyLock::new(|| Config::new(RELATIVE_ERROR, 2_048, 1.0));

/// The bin of zero, which has no logarithm.
const ZERO_BIN: i32 = -1;

/// The same values make the same samples, in whatever order and parts they are added.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Samples {
    /// The values in their order, as long as they are few; else empty.
    pub(crate) exact: Vec<i64>,
    /// Values by bin, in the order of the bins, if they are many.
    pub(crate) bins: Vec<(i32, u64)>,
}

impl Samples {
    pub fn count(&self) -> u64 {
        self.exact.len() as u64 + self.bins.iter().map(|(_, count)| count).sum::<u64>()
    }

    pub fn add_value(&mut self, value: i64) {
        let value = value.max(0);
        if self.bins.is_empty() && self.exact.len() < EXACT_MAX {
            let at = self.exact.partition_point(|other| *other < value);
            return self.exact.insert(at, value);
        }
        self.sort_into_bins();
        self.add_bin(bin_of(value), 1);
    }

    pub fn add_all(&mut self, other: &Samples) {
        if other.bins.is_empty() {
            for value in &other.exact {
                self.add_value(*value);
            }
            return;
        }
        self.sort_into_bins();
        if !add_to_bins(&mut self.bins, &other.bins) {
            self.bins = merge_bins(&self.bins, &other.bins);
        }
    }

    /// The value that this part of all values does not exceed, such as 0.5 for the median: of 10 values it is the fifth
    /// smallest. None of no values.
    pub fn quantile(&self, part: f64) -> Option<f64> {
        let last = self.count().checked_sub(1)?;
        #[expect(clippy::cast_precision_loss, clippy::cast_possible_truncation, reason = "a rank of at most the count")]
        let rank = (last as f64 * part) as u64;
        #[expect(clippy::cast_precision_loss, reason = "milliseconds of far less than an age")]
        if let Some(value) = self.exact.get(usize::try_from(rank).ok()?) {
            return Some(*value as f64);
        }
        let mut below = 0;
        let found = self.bins.iter().find(|(_, count)| {
            below += count;
            below > rank
        });
        found.map(|(bin, _)| if *bin == ZERO_BIN { 0.0 } else { BINS.value(*bin) })
    }

    /// The percentiles that are kept beside the samples.
    pub(crate) fn percentile_thousandths(&self) -> [i64; PERCENTILES.len()] {
        #[expect(clippy::cast_possible_truncation, reason = "milliseconds of far less than an age")]
        PERCENTILES.map(|part| (self.quantile(part).unwrap_or_default() * 1_000.0).round() as i64)
    }

    fn sort_into_bins(&mut self) {
        for value in std::mem::take(&mut self.exact) {
            self.add_bin(bin_of(value), 1);
        }
    }

    fn add_bin(&mut self, bin: i32, by: u64) {
        match self.bins.binary_search_by_key(&bin, |(bin, _)| *bin) {
            Ok(at) => self.bins[at].1 += by,
            Err(at) => self.bins.insert(at, (bin, by)),
        }
    }
}

fn bin_of(value: i64) -> i32 {
    #[expect(clippy::cast_precision_loss, reason = "within the error of a bin")]
    if value == 0 { ZERO_BIN } else { BINS.key(value as f64) }
}

/// Adds to bins that are all there, as in a sum of many they are; else it adds nothing.
fn add_to_bins(sum: &mut [(i32, u64)], added: &[(i32, u64)]) -> bool {
    let mut bins = sum.iter().map(|(bin, _)| bin);
    if !added.iter().all(|(bin, _)| bins.any(|known| known == bin)) {
        return false;
    }
    let mut bins = sum.iter_mut();
    for (bin, count) in added {
        if let Some((_, sum)) = bins.find(|(known, _)| known == bin) {
            *sum += count;
        }
    }
    true
}

fn merge_bins(ours: &[(i32, u64)], theirs: &[(i32, u64)]) -> Vec<(i32, u64)> {
    let mut merged = Vec::with_capacity(ours.len() + theirs.len());
    let (mut ours, mut theirs) = (ours.iter().copied().peekable(), theirs.iter().copied().peekable());
    loop {
        let next = match (ours.peek(), theirs.peek()) {
            (Some((one, _)), Some((other, _))) => match one.cmp(other) {
                Ordering::Less => ours.next(),
                Ordering::Greater => theirs.next(),
                Ordering::Equal => ours.next().zip(theirs.next()).map(|(one, other)| (one.0, one.1 + other.1)),
            },
            (Some(_), None) => ours.next(),
            (None, _) => theirs.next(),
        };
        match next {
            Some(bin) => merged.push(bin),
            None => return merged,
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn samples_of(values: &[i64]) -> Samples {
        let mut samples = Samples::default();
        for value in values {
            samples.add_value(*value);
        }
        samples
    }

    #[test]
    fn nothing_has_no_percentile_and_a_few_values_are_exact() {
        assert_eq!(Samples::default().quantile(0.5), None);
        assert_eq!(samples_of(&[-5]).quantile(0.5), Some(0.0), "a clock that went back");
        let few = samples_of(&[28_800_000, 7_200_000, 10_800_000]);
        assert_eq!((few.quantile(0.5), few.quantile(1.0)), (Some(10_800_000.0), Some(28_800_000.0)));
        let ten: Vec<i64> = (1..=10).collect();
        assert_eq!((samples_of(&ten).quantile(0.5), samples_of(&ten).quantile(0.9)), (Some(5.0), Some(9.0)));
    }

    proptest! {
        #[test]
        fn a_percentile_is_within_its_error_however_the_parts_are_added(
            parts in prop::collection::vec(prop::collection::vec(0_i64..400_000_000, 0..40), 1..8),
            part in 0.0_f64..1.0,
        ) {
            let mut all: Vec<i64> = parts.concat();
            let mut added = Samples::default();
            for part in &parts {
                added.add_all(&samples_of(part));
            }
            prop_assert_eq!(&added, &samples_of(&all));
            all.sort_unstable();
            prop_assert_eq!(added.count(), all.len() as u64);
            let Some(found) = added.quantile(part) else {
                prop_assert!(all.is_empty());
                return Ok(());
            };
            #[expect(clippy::cast_precision_loss, clippy::cast_possible_truncation, reason = "small")]
            let exact = all[((all.len() - 1) as f64 * part) as usize] as f64;
            prop_assert!((found - exact).abs() <= exact * RELATIVE_ERROR + 1e-6, "{} for {}", found, exact);
            if all.len() <= EXACT_MAX {
                prop_assert!((found - exact).abs() < 1e-9);
            }
        }
    }
}
