//! Figures that add up: what happened in a quarter of an hour, an hour, a day or a week is the sum of what happened in its
//! parts, and that of the platform the sum of its tenants'.
//!
//! A [`Fact`] is what one change contributes. [`Figures`] are sums of facts: counts (which also hold levels, as the sum of
//! their changes) and [`Samples`], of which percentiles are read. Deliberately left out: what the cells mean, and where they
//! are stored. Features declare their cells; the number of a [`Cell`] is stored, so it is never given to another.

pub mod cells;
mod codec;
mod fact;
mod groups;
mod samples;

pub use codec::{Undecodable, entries_from_bytes, entries_to_bytes};
pub use fact::{Fact, Group};
pub use groups::FigureGroups;
pub use samples::{EXACT_MAX, RELATIVE_ERROR, Samples};

/// A count or a distribution, by the number under which it is stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Cell(pub u8);

/// What figures are broken down by, by the number under which it is stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Dimension(pub u8);

impl Dimension {
    pub const NONE: Dimension = Dimension(0);
}

/// Counts by cell, in the order of the cells. A count of zero is not kept.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Counts(Vec<(Cell, i64)>);

impl Counts {
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub fn count(&self, cell: Cell) -> i64 {
        find_cell(&self.0, cell).copied().unwrap_or_default()
    }

    pub fn iter(&self) -> impl Iterator<Item = (Cell, i64)> {
        self.0.iter().copied()
    }

    pub fn add_count(&mut self, cell: Cell, by: i64) {
        if by == 0 {
            return;
        }
        match self.0.binary_search_by_key(&cell, |(cell, _)| *cell) {
            Ok(at) => {
                self.0[at].1 = self.0[at].1.saturating_add(by);
                if self.0[at].1 == 0 {
                    self.0.remove(at);
                }
            }
            Err(at) => self.0.insert(at, (cell, by)),
        }
    }

    pub fn add_counts(&mut self, other: &Counts) {
        let mut from = 0;
        for (cell, by) in other.iter() {
            from = self.add_count_from(from, cell, by);
        }
        self.0.retain(|(_, count)| *count != 0);
    }

    /// Adds to a cell that is not before this place, and returns its place. A count of zero may remain.
    fn add_count_from(&mut self, from: usize, cell: Cell, by: i64) -> usize {
        let at = from + self.0[from..].iter().take_while(|(other, _)| *other < cell).count();
        match self.0.get_mut(at).filter(|(other, _)| *other == cell) {
            Some((_, count)) => *count = count.saturating_add(by),
            None => self.0.insert(at, (cell, by)),
        }
        at
    }
}

/// What an answer shows of sums to which nothing is added: counts, and percentiles without what they are computed of.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct FigureSummary {
    pub counts: Counts,
    /// In thousandths.
    percentiles: Vec<(Cell, [i64; codec::PERCENTILES.len()])>,
}

impl FigureSummary {
    /// Of what [`Figures::summary_bytes`] made.
    pub fn from_bytes(mut bytes: &[u8]) -> Result<Self, Undecodable> {
        codec::read_all(&mut bytes, codec::read_summary)
    }

    pub fn count(&self, cell: Cell) -> i64 {
        self.counts.count(cell)
    }

    /// One of the percentiles that are kept: the 50th, the 90th or the 99th.
    pub fn percentile(&self, cell: Cell, percent: u64) -> Option<f64> {
        let kept = codec::PERCENTILES.iter().position(|kept| *kept == percent)?;
        #[expect(clippy::cast_precision_loss, reason = "within the error of a percentile")]
        find_cell(&self.percentiles, cell).map(|values| values[kept] as f64 / 1_000.0)
    }
}

fn find_cell<T>(cells: &[(Cell, T)], cell: Cell) -> Option<&T> {
    let at = cells.binary_search_by_key(&cell, |(cell, _)| *cell).ok()?;
    cells.get(at).map(|(_, value)| value)
}

/// Sums by cell, in the order of the cells.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Figures {
    counts: Counts,
    samples: Vec<(Cell, Samples)>,
}

impl Figures {
    pub fn is_empty(&self) -> bool {
        self.counts.is_empty() && self.samples.is_empty()
    }

    pub fn counts(&self) -> &Counts {
        &self.counts
    }

    pub fn count(&self, cell: Cell) -> i64 {
        self.counts.count(cell)
    }

    pub fn samples(&self, cell: Cell) -> Option<&Samples> {
        find_cell(&self.samples, cell)
    }

    pub fn percentile(&self, cell: Cell, percent: u64) -> Option<f64> {
        self.samples(cell)?.percentile(percent)
    }

    pub fn add_count(&mut self, cell: Cell, by: i64) {
        self.counts.add_count(cell, by);
    }

    pub fn add_counts(&mut self, counts: &Counts) {
        self.counts.add_counts(counts);
    }

    /// Adds one sample, in whole units such as milliseconds. A negative one counts as zero.
    pub fn add_sample(&mut self, cell: Cell, value: i64) {
        self.samples_mut(cell).add_value(value);
    }

    pub fn add_samples(&mut self, cell: Cell, other: &Samples) {
        if other.count() > 0 {
            self.samples_mut(cell).add_all(other);
        }
    }

    pub fn add_figures(&mut self, other: &Figures) {
        self.counts.add_counts(&other.counts);
        for (cell, samples) in &other.samples {
            self.add_samples(*cell, samples);
        }
    }

    /// Adds a stored sum, without a copy of it: an answer adds thousands.
    pub fn add_bytes(&mut self, mut summary: &[u8], mut samples: &[u8]) -> Result<(), Undecodable> {
        self.counts.add_counts(&codec::read_counts(&mut summary)?);
        codec::read_all(&mut samples, |bytes| codec::add_samples(bytes, self))
    }

    /// Of what [`Figures::summary_bytes`] and [`Figures::samples_bytes`] made.
    pub fn from_bytes(summary: &[u8], samples: &[u8]) -> Result<Self, Undecodable> {
        let mut figures = Figures::default();
        figures.add_bytes(summary, samples)?;
        Ok(figures)
    }

    /// The counts, and the percentiles without what they are computed of.
    pub fn summary_bytes(&self) -> Vec<u8> {
        codec::to_bytes(|bytes| codec::write_summary(bytes, &self.to_summary()))
    }

    /// What percentiles are computed of.
    pub fn samples_bytes(&self) -> Vec<u8> {
        codec::to_bytes(|bytes| codec::write_samples(bytes, &self.samples))
    }

    /// The same without what percentiles are computed of.
    pub fn to_summary(&self) -> FigureSummary {
        let thousandths = |(cell, samples): &(Cell, Samples)| (*cell, samples.percentile_thousandths());
        let percentiles = self.samples.iter().map(thousandths).collect();
        FigureSummary { counts: self.counts.clone(), percentiles }
    }

    /// Only these cells.
    #[must_use]
    pub fn with_cells(mut self, keep: impl Fn(Cell) -> bool) -> Self {
        self.counts.0.retain(|(cell, _)| keep(*cell));
        self.samples.retain(|(cell, _)| keep(*cell));
        self
    }

    fn samples_mut(&mut self, cell: Cell) -> &mut Samples {
        let at = match self.samples.binary_search_by_key(&cell, |(cell, _)| *cell) {
            Ok(at) => at,
            Err(at) => {
                self.samples.insert(at, (cell, Samples::default()));
                at
            }
        };
        &mut self.samples[at].1
    }
}
