//! Figures and facts as bytes: numbers of variable length, and only cells that are not zero, because an answer of 90 days reads
//! thousands of rows.

use std::fmt;

use super::{Cell, Counts, Dimension, Fact, FigureGroups, FigureSummary, Figures, Group, Samples};

/// Bytes that are no figures.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Undecodable;

impl fmt::Display for Undecodable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("stored figures cannot be read")
    }
}

impl std::error::Error for Undecodable {}

type Read<T> = Result<T, Undecodable>;

fn write_number(bytes: &mut Vec<u8>, mut number: u64) {
    while number >= 0x80 {
        #[expect(clippy::cast_possible_truncation, reason = "seven bits at a time")]
        bytes.push(number as u8 | 0x80);
        number >>= 7;
    }
    #[expect(clippy::cast_possible_truncation, reason = "less than 128")]
    bytes.push(number as u8);
}

#[inline]
fn read_number(bytes: &mut &[u8]) -> Read<u64> {
    // Nearly all are as short as this.
    match **bytes {
        [first @ ..0x80, ref rest @ ..] => {
            *bytes = rest;
            Ok(u64::from(first))
        }
        [first, second @ ..0x80, ref rest @ ..] => {
            *bytes = rest;
            Ok(u64::from(first & 0x7f) | u64::from(second) << 7)
        }
        _ => read_long_number(bytes),
    }
}

fn read_long_number(bytes: &mut &[u8]) -> Read<u64> {
    let (mut number, mut shift) = (0_u64, 0);
    loop {
        let byte = read_byte(bytes)?;
        number |= u64::from(byte & 0x7f).checked_shl(shift).ok_or(Undecodable)?;
        if byte < 0x80 {
            return Ok(number);
        }
        shift += 7;
    }
}

fn read_byte(bytes: &mut &[u8]) -> Read<u8> {
    let (byte, rest) = bytes.split_first().ok_or(Undecodable)?;
    *bytes = rest;
    Ok(*byte)
}

/// Small numbers of either sign are short.
fn write_signed(bytes: &mut Vec<u8>, number: i64) {
    write_number(bytes, ((number << 1) ^ (number >> 63)) as u64);
}

fn read_signed(bytes: &mut &[u8]) -> Read<i64> {
    let number = read_number(bytes)?;
    Ok((number >> 1) as i64 ^ -((number & 1) as i64))
}

/// How many items follow; each takes a byte at least, so bad bytes cannot ask for much memory.
fn read_length(bytes: &mut &[u8]) -> Read<usize> {
    let length = usize::try_from(read_number(bytes)?).map_err(|_| Undecodable)?;
    if length > bytes.len() { Err(Undecodable) } else { Ok(length) }
}

fn write_text(bytes: &mut Vec<u8>, text: &str) {
    write_number(bytes, text.len() as u64);
    bytes.extend_from_slice(text.as_bytes());
}

fn read_text<'a>(bytes: &mut &'a [u8]) -> Read<&'a str> {
    let length = read_length(bytes)?;
    let (text, rest) = bytes.split_at(length);
    *bytes = rest;
    std::str::from_utf8(text).map_err(|_| Undecodable)
}

/// The bytes that this writes.
pub fn to_bytes(write: impl FnOnce(&mut Vec<u8>)) -> Vec<u8> {
    let mut bytes = Vec::new();
    write(&mut bytes);
    bytes
}

/// Reads all of the bytes.
pub fn read_all<T>(bytes: &mut &[u8], read: impl FnOnce(&mut &[u8]) -> Read<T>) -> Read<T> {
    let value = read(bytes)?;
    if bytes.is_empty() { Ok(value) } else { Err(Undecodable) }
}

fn write_counts(bytes: &mut Vec<u8>, counts: &Counts) {
    write_number(bytes, counts.0.len() as u64);
    for (cell, count) in counts.iter() {
        bytes.push(cell.0);
        write_signed(bytes, count);
    }
}

pub fn read_counts(bytes: &mut &[u8]) -> Read<Counts> {
    let length = read_length(bytes)?;
    let mut counts = Vec::with_capacity(length);
    for _ in 0..length {
        counts.push((Cell(read_byte(bytes)?), read_signed(bytes)?));
    }
    Ok(Counts(counts))
}

/// The percentiles that are shown.
pub const PERCENTILES: [u64; 3] = [50, 90, 99];

pub fn write_summary(bytes: &mut Vec<u8>, summary: &FigureSummary) {
    write_counts(bytes, &summary.counts);
    write_number(bytes, summary.percentiles.len() as u64);
    for (cell, thousandths) in &summary.percentiles {
        bytes.push(cell.0);
        for value in thousandths {
            write_signed(bytes, *value);
        }
    }
}

pub fn read_summary(bytes: &mut &[u8]) -> Read<FigureSummary> {
    let mut summary = FigureSummary { counts: read_counts(bytes)?, ..FigureSummary::default() };
    let length = read_length(bytes)?;
    summary.percentiles.reserve_exact(length);
    for _ in 0..length {
        let cell = Cell(read_byte(bytes)?);
        let mut thousandths = [0; PERCENTILES.len()];
        for value in &mut thousandths {
            *value = read_signed(bytes)?;
        }
        summary.percentiles.push((cell, thousandths));
    }
    Ok(summary)
}

/// Values in their order, each as its distance from the one before, and bins as runs without gaps.
pub fn write_samples(bytes: &mut Vec<u8>, all: &[(Cell, Samples)]) {
    write_number(bytes, all.len() as u64);
    for (cell, samples) in all {
        bytes.push(cell.0);
        write_number(bytes, samples.exact.len() as u64);
        let mut last = 0_i64;
        for value in &samples.exact {
            write_signed(bytes, value.wrapping_sub(last));
            last = *value;
        }
        let runs: Vec<(usize, &[u64])> = samples.bins.runs().collect();
        write_number(bytes, runs.len() as u64);
        let mut end = 0;
        for (start, counts) in runs {
            write_number(bytes, (start - end) as u64);
            write_number(bytes, counts.len() as u64);
            for count in counts {
                write_number(bytes, *count);
            }
            end = start + counts.len();
        }
    }
}

/// Adds what `write_samples` wrote.
pub fn add_samples(bytes: &mut &[u8], figures: &mut Figures) -> Read<()> {
    for _ in 0..read_length(bytes)? {
        let samples = figures.samples_mut(Cell(read_byte(bytes)?));
        let mut last = 0_i64;
        for _ in 0..read_length(bytes)? {
            last = last.wrapping_add(read_signed(bytes)?);
            samples.add_value(last);
        }
        let mut end = 0_usize;
        for _ in 0..read_length(bytes)? {
            let gap = usize::try_from(read_number(bytes)?).map_err(|_| Undecodable)?;
            let (start, length) = (end.saturating_add(gap), read_length(bytes)?);
            end = start.saturating_add(length);
            let Some(bins) = samples.bins_mut(start, length) else { return Err(Undecodable) };
            for sum in bins {
                *sum = sum.saturating_add(read_number(bytes)?);
            }
        }
    }
    Ok(())
}

fn write_figures(bytes: &mut Vec<u8>, figures: &Figures) {
    write_counts(bytes, &figures.counts);
    write_samples(bytes, &figures.samples);
}

/// Adds what `write_figures` wrote.
fn add_figures(bytes: &mut &[u8], figures: &mut Figures) -> Read<()> {
    figures.counts.add_counts(&read_counts(bytes)?);
    add_samples(bytes, figures)
}

/// Figures by group, such as those of a fact.
pub fn entries_to_bytes(entries: &[(Group, Figures)]) -> Vec<u8> {
    to_bytes(|bytes| {
        write_number(bytes, entries.len() as u64);
        for (group, figures) in entries {
            bytes.push(group.dimension.0);
            write_text(bytes, &group.member);
            write_figures(bytes, figures);
        }
    })
}

pub fn entries_from_bytes(mut bytes: &[u8]) -> Read<Vec<(Group, Figures)>> {
    let mut entries = Vec::new();
    read_all(&mut bytes, |bytes| {
        for _ in 0..read_length(bytes)? {
            let group = Group::new(Dimension(read_byte(bytes)?), read_text(bytes)?);
            let mut figures = Figures::default();
            add_figures(bytes, &mut figures)?;
            entries.push((group, figures));
        }
        Ok(())
    })?;
    Ok(entries)
}

/// Adds the entries of some dimensions to groups.
pub fn add_entries(bytes: &mut &[u8], groups: &mut FigureGroups, keep: impl Fn(Dimension) -> bool) -> Read<()> {
    for _ in 0..read_length(bytes)? {
        let (dimension, member) = (Dimension(read_byte(bytes)?), read_text(bytes)?);
        if keep(dimension) {
            groups.add_with(dimension, member, |figures| add_figures(bytes, figures))?;
        } else {
            skip_figures(bytes)?;
        }
    }
    Ok(())
}

fn skip_figures(bytes: &mut &[u8]) -> Read<()> {
    for _ in 0..read_length(bytes)? {
        read_byte(bytes)?;
        read_number(bytes)?;
    }
    for _ in 0..read_length(bytes)? {
        read_byte(bytes)?;
        for _ in 0..read_length(bytes)? {
            read_number(bytes)?;
        }
        for _ in 0..read_length(bytes)? {
            read_number(bytes)?;
            for _ in 0..read_length(bytes)? {
                read_number(bytes)?;
            }
        }
    }
    Ok(())
}

impl Fact {
    /// The entries without empty ones, as bytes.
    pub fn body_bytes(&self) -> Vec<u8> {
        let entries: Vec<(Group, Figures)> =
            self.entries.iter().filter(|(_, figures)| !figures.is_empty()).cloned().collect();
        entries_to_bytes(&entries)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn what_is_written_is_read_as_it_was(
            counts in prop::collection::vec((any::<u8>(), any::<i64>()), 0..20),
            // Thousandths of larger ones do not fit: milliseconds of 285,000 years.
            samples in prop::collection::vec((any::<u8>(), 0_i64..9_000_000_000_000_000), 0..60),
            member in ".{0,20}",
        ) {
            let mut figures = Figures::default();
            for (cell, by) in &counts {
                figures.add_count(Cell(*cell), *by);
            }
            for (cell, value) in &samples {
                figures.add_sample(Cell(*cell), *value);
            }
            let (summary, samples) = (figures.summary_bytes(), figures.samples_bytes());
            prop_assert_eq!(Figures::from_bytes(&summary, &samples), Ok(figures.clone()));
            let summary = FigureSummary::from_bytes(&summary).map_err(|_| TestCaseError::fail("unreadable"))?;
            for cell in (0..=u8::MAX).map(Cell) {
                prop_assert_eq!(summary.count(cell), figures.count(cell));
                for percent in PERCENTILES {
                    let (shown, exact) = (summary.percentile(cell, percent), figures.percentile(cell, percent));
                    prop_assert_eq!(shown.is_some(), exact.is_some());
                    prop_assert!((shown.unwrap_or_default() - exact.unwrap_or_default()).abs() <= 0.001 + exact.unwrap_or_default() * 1e-9);
                }
            }
            let entries = vec![(Group::ALL, figures.clone()), (Group::new(Dimension(7), member.as_str()), figures.clone())];
            let bytes = entries_to_bytes(&entries);
            prop_assert_eq!(entries_from_bytes(&bytes), Ok(entries));
            let mut groups = FigureGroups::default();
            groups.add_bytes_of(&bytes, |dimension| dimension == Dimension(7)).map_err(|_| TestCaseError::fail("unreadable"))?;
            prop_assert_eq!(groups.get(Dimension(7), &member), Some(&figures));
            prop_assert_eq!(groups.get(Dimension::NONE, ""), None);
        }

        #[test]
        fn bytes_that_are_no_figures_are_refused_without_harm(bytes in prop::collection::vec(any::<u8>(), 0..64)) {
            let (summary, samples) = bytes.split_at(bytes.len() / 2);
            let _ = Figures::from_bytes(summary, samples);
            let _ = FigureSummary::from_bytes(&bytes);
            let _ = entries_from_bytes(&bytes);
        }
    }

    #[test]
    fn usual_figures_are_short() {
        let mut figures = Figures::default();
        figures.add_count(Cell(10), 3);
        figures.add_count(Cell(11), -3);
        figures.add_sample(Cell(12), 3_600_000);
        let length = figures.summary_bytes().len() + figures.samples_bytes().len();
        assert!(length < 40, "{length}");
    }
}
