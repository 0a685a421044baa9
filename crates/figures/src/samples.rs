//! Distributions of values, from which percentiles are read.
//!
//! A few values are kept as they are, so that a small company can check its figures by hand. More of them are a DDSketch: a
//! value is counted in a bin whose bounds are within 1 % of its middle, so a percentile is off by at most that, however many
//! are added together. The bounds come from `sketches-ddsketch`; its own sketch drops bins beyond a limit and depends on the order in
//! which sketches are added.

use std::sync::LazyLock;

use sketches_ddsketch::Config;

use super::codec::PERCENTILES;

/// A percentile is at most this much larger or smaller than the true one.
pub const RELATIVE_ERROR: f64 = 0.01;

/// So many values are kept as they are.
pub const EXACT_MAX: usize = 20;

static BINS: LazyLock<Config> = LazyLock::new(|| Config::new(RELATIVE_ERROR, 2_048, 1.0));

/// The bin of zero, which has no logarithm. That of one follows.
const ZERO_BIN: usize = 0;
/// More than there are: that of the largest number is the 2,208th.
const BINS_MAX: usize = 2_300;

/// The same values make the same samples, in whatever order and parts they are added.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Samples {
    /// The values in their order, as long as they are few; else empty.
    pub(crate) exact: Vec<i64>,
    /// The values by bin, if they are many.
    pub(crate) bins: Bins,
}

/// Counts of consecutive bins; the first and the last are not zero.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Bins {
    first: usize,
    counts: Vec<u64>,
}

impl Bins {
    fn is_empty(&self) -> bool {
        self.counts.is_empty()
    }

    /// The bins without gaps, by the number of their first.
    pub(crate) fn runs(&self) -> impl Iterator<Item = (usize, &[u64])> {
        let mut start = self.first;
        self.counts.chunk_by(|one, next| (*one == 0) == (*next == 0)).filter_map(move |run| {
            let first = start;
            start += run.len();
            (run[0] != 0).then_some((first, run))
        })
    }

    /// Room for these bins; none if there are no such bins.
    fn range_mut(&mut self, start: usize, length: usize) -> Option<&mut [u64]> {
        let end = start.checked_add(length).filter(|end| *end <= BINS_MAX)?;
        if self.is_empty() {
            self.first = start;
        }
        if start < self.first {
            self.counts.splice(..0, std::iter::repeat_n(0, self.first - start));
            self.first = start;
        }
        if end > self.first + self.counts.len() {
            self.counts.resize(end - self.first, 0);
        }
        self.counts.get_mut(start - self.first..end - self.first)
    }

    fn add_one(&mut self, bin: usize) {
        for count in self.range_mut(bin, 1).into_iter().flatten() {
            *count += 1;
        }
    }

    fn add_all(&mut self, other: &Bins) {
        let sums = self.range_mut(other.first, other.counts.len()).into_iter().flatten();
        for (sum, count) in sums.zip(&other.counts) {
            *sum = sum.saturating_add(*count);
        }
    }
}

impl Samples {
    pub fn count(&self) -> u64 {
        self.exact.len() as u64 + self.bins.counts.iter().sum::<u64>()
    }

    pub fn add_value(&mut self, value: i64) {
        let value = value.max(0);
        if self.bins.is_empty() && self.exact.len() < EXACT_MAX {
            let at = self.exact.partition_point(|other| *other < value);
            return self.exact.insert(at, value);
        }
        self.sort_into_bins();
        self.bins.add_one(bin_of(value));
    }

    pub fn add_all(&mut self, other: &Samples) {
        if other.bins.is_empty() {
            for value in &other.exact {
                self.add_value(*value);
            }
            return;
        }
        self.sort_into_bins();
        self.bins.add_all(&other.bins);
    }

    /// The counts of these bins, to add to; none if there are no such bins.
    pub(crate) fn bins_mut(&mut self, start: usize, length: usize) -> Option<&mut [u64]> {
        self.sort_into_bins();
        self.bins.range_mut(start, length)
    }

    /// The smallest value that so many percent of all values do not exceed: of three values the 90th percentile is the third, as
    /// `percentile_disc` of SQL has it. None of no values.
    pub fn percentile(&self, percent: u64) -> Option<f64> {
        let count = u128::from(self.count());
        let rank = (count * u128::from(percent)).div_ceil(100).max(1);
        #[expect(clippy::cast_precision_loss, reason = "milliseconds of far less than an age")]
        if let Some(value) = usize::try_from(rank - 1).ok().and_then(|at| self.exact.get(at)) {
            return Some(*value as f64);
        }
        let mut below = 0;
        let found = self.bins.counts.iter().position(|count| {
            below += u128::from(*count);
            below >= rank
        });
        found.map(|at| value_of(self.bins.first + at))
    }

    /// The percentiles that are kept beside the samples.
    pub(crate) fn percentile_thousandths(&self) -> [i64; PERCENTILES.len()] {
        #[expect(clippy::cast_possible_truncation, reason = "milliseconds of far less than an age")]
        PERCENTILES.map(|percent| (self.percentile(percent).unwrap_or_default() * 1_000.0).round() as i64)
    }

    fn sort_into_bins(&mut self) {
        for value in std::mem::take(&mut self.exact) {
            self.bins.add_one(bin_of(value));
        }
    }
}

fn bin_of(value: i64) -> usize {
    if value == 0 {
        return ZERO_BIN;
    }
    #[expect(clippy::cast_precision_loss, reason = "within the error of a bin")]
    let key = BINS.key(value as f64);
    usize::try_from(key + 1).unwrap_or_default()
}

#[expect(clippy::cast_possible_wrap, clippy::cast_possible_truncation, reason = "bins are few")]
fn value_of(bin: usize) -> f64 {
    if bin == ZERO_BIN { 0.0 } else { BINS.value(bin as i32 - 1) }
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
        assert_eq!(Samples::default().percentile(50), None);
        assert_eq!(samples_of(&[-5]).percentile(50), Some(0.0), "a clock that went back");
        let few = samples_of(&[28_800_000, 7_200_000, 10_800_000]);
        assert_eq!((few.percentile(50), few.percentile(90)), (Some(10_800_000.0), Some(28_800_000.0)));
        let ten = samples_of(&(1..=10).collect::<Vec<i64>>());
        let percentiles = [0, 50, 90, 91, 100].map(|percent| ten.percentile(percent));
        assert_eq!(percentiles, [1.0, 5.0, 9.0, 10.0, 10.0].map(Some));
    }

    #[test]
    fn the_largest_number_has_a_bin() {
        assert!(bin_of(i64::MAX) < BINS_MAX, "{}", bin_of(i64::MAX));
        assert_eq!((bin_of(0), bin_of(1)), (ZERO_BIN, 1));
        assert!(samples_of(&[i64::MAX; 30]).percentile(50) > Some(9e18));
    }

    proptest! {
        #[test]
        fn a_percentile_is_within_its_error_however_the_parts_are_added(
            parts in prop::collection::vec(prop::collection::vec(0_i64..400_000_000, 0..40), 1..8),
            percent in 1_usize..=100,
        ) {
            let mut all: Vec<i64> = parts.concat();
            let mut added = Samples::default();
            for part in &parts {
                added.add_all(&samples_of(part));
            }
            prop_assert_eq!(&added, &samples_of(&all));
            all.sort_unstable();
            prop_assert_eq!(added.count(), all.len() as u64);
            let Some(found) = added.percentile(percent as u64) else {
                prop_assert!(all.is_empty());
                return Ok(());
            };
            #[expect(clippy::cast_precision_loss, reason = "small")]
            let exact = all[(all.len() * percent).div_ceil(100) - 1] as f64;
            prop_assert!((found - exact).abs() <= exact * RELATIVE_ERROR + 1e-6, "{} for {}", found, exact);
            if all.len() <= EXACT_MAX {
                prop_assert!((found - exact).abs() < 1e-9);
            }
        }
    }
}
