//! Figures and facts as bytes: numbers of variable length, and only cells that are not zero, because an answer of 90 days reads
//! thousands of rows.

use std::fmt;

use super::{Cell, Dimension, Fact, FigureSummary, Figures, Group, Samples};

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

fn read_number(bytes: &mut &[u8]) -> Read<u64> {
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

pub fn write_figures(bytes: &mut Vec<u8>, figures: &Figures) {
    write_number(bytes, figures.counts.len() as u64);
    for (cell, count) in &figures.counts {
        bytes.push(cell.0);
        write_signed(bytes, *count);
    }
    write_number(bytes, figures.samples.len() as u64);
    for (cell, samples) in &figures.samples {
        bytes.push(cell.0);
        write_samples(bytes, samples);
    }
}

/// The counts and the percentiles, without what the percentiles are computed of.
pub fn read_summary(bytes: &mut &[u8]) -> Read<FigureSummary> {
    let mut summary = FigureSummary::default();
    let counts = read_length(bytes)?;
    summary.counts.reserve_exact(counts);
    for _ in 0..counts {
        summary.counts.push((Cell(read_byte(bytes)?), read_signed(bytes)?));
    }
    for _ in 0..read_length(bytes)? {
        let cell = Cell(read_byte(bytes)?);
        let length = read_length(bytes)?;
        let (mut own, rest) = bytes.split_at(length);
        *bytes = rest;
        let mut thousandths = [0; PERCENTILES.len()];
        for value in &mut thousandths {
            *value = read_signed(&mut own)?;
        }
        summary.percentiles.push((cell, thousandths));
    }
    Ok(summary)
}

pub fn read_figures(bytes: &mut &[u8]) -> Read<Figures> {
    let mut figures = Figures::default();
    let counts = read_length(bytes)?;
    figures.counts.reserve_exact(counts);
    for _ in 0..counts {
        figures.counts.push((Cell(read_byte(bytes)?), read_signed(bytes)?));
    }
    for _ in 0..read_length(bytes)? {
        figures.samples.push((Cell(read_byte(bytes)?), read_samples(bytes)?));
    }
    Ok(figures)
}

/// The percentiles that are shown, in thousandths, before what they are computed of.
pub const PERCENTILES: [f64; 3] = [0.5, 0.9, 0.99];

/// With their length and their percentiles first, so that a reader who adds nothing to them can skip the rest.
fn write_samples(bytes: &mut Vec<u8>, samples: &Samples) {
    let mut own = Vec::new();
    for value in samples.percentile_thousandths() {
        write_signed(&mut own, value);
    }
    write_bins(&mut own, samples);
    write_number(bytes, own.len() as u64);
    bytes.extend_from_slice(&own);
}

/// Values in their order and bins in theirs: each as its distance from the one before.
fn write_bins(bytes: &mut Vec<u8>, samples: &Samples) {
    write_number(bytes, samples.exact.len() as u64);
    let mut last = 0_i64;
    for value in &samples.exact {
        write_signed(bytes, value.wrapping_sub(last));
        last = *value;
    }
    write_number(bytes, samples.bins.len() as u64);
    let mut last = 0;
    for (bin, count) in &samples.bins {
        write_signed(bytes, i64::from(*bin) - i64::from(last));
        write_number(bytes, *count);
        last = *bin;
    }
}

fn read_samples(bytes: &mut &[u8]) -> Read<Samples> {
    let length = read_length(bytes)?;
    let (mut own, rest) = bytes.split_at(length);
    *bytes = rest;
    for _ in PERCENTILES {
        read_signed(&mut own)?;
    }
    read_bins(&mut own)
}

fn read_bins(bytes: &mut &[u8]) -> Read<Samples> {
    let mut samples = Samples::default();
    let values = read_length(bytes)?;
    samples.exact.reserve_exact(values);
    let mut last = 0_i64;
    for _ in 0..values {
        last = last.wrapping_add(read_signed(bytes)?);
        samples.exact.push(last);
    }
    let bins = read_length(bytes)?;
    samples.bins.reserve_exact(bins);
    let mut last = 0_i64;
    for _ in 0..bins {
        last = last.checked_add(read_signed(bytes)?).ok_or(Undecodable)?;
        samples.bins.push((i32::try_from(last).map_err(|_| Undecodable)?, read_number(bytes)?));
    }
    Ok(samples)
}

/// Figures by group, such as those of a fact.
pub fn write_entries(bytes: &mut Vec<u8>, entries: &[(Group, Figures)]) {
    write_number(bytes, entries.len() as u64);
    for (group, figures) in entries {
        bytes.push(group.dimension.0);
        write_text(bytes, &group.member);
        write_figures(bytes, figures);
    }
}

/// The entries as bytes; the times are kept beside them.
pub fn entries_to_bytes(entries: &[(Group, Figures)]) -> Vec<u8> {
    let mut bytes = Vec::new();
    write_entries(&mut bytes, entries);
    bytes
}

pub fn entries_from_bytes(bytes: &[u8]) -> Read<Vec<(Group, Figures)>> {
    let mut entries = Vec::new();
    visit_entries(bytes, |dimension, member, figures| entries.push((Group::new(dimension, member), figures)))?;
    Ok(entries)
}

/// Reads entries without a copy of their members: an answer reads tens of thousands.
pub fn visit_entries<'a>(mut bytes: &'a [u8], mut visit: impl FnMut(Dimension, &'a str, Figures)) -> Read<()> {
    for _ in 0..read_length(&mut bytes)? {
        let (dimension, member) = (Dimension(read_byte(&mut bytes)?), read_text(&mut bytes)?);
        visit(dimension, member, read_figures(&mut bytes)?);
    }
    if bytes.is_empty() { Ok(()) } else { Err(Undecodable) }
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
            samples in prop::collection::vec((any::<u8>(), 0_i64..i64::MAX / 2), 0..60),
            member in ".{0,20}",
        ) {
            let mut figures = Figures::default();
            for (cell, by) in &counts {
                figures.add_count(Cell(*cell), *by);
            }
            for (cell, value) in &samples {
                figures.add_sample(Cell(*cell), *value);
            }
            prop_assert_eq!(Figures::from_bytes(&figures.to_bytes()), Ok(figures.clone()));
            let summary = FigureSummary::from_bytes(&figures.to_bytes()).map_err(|_| TestCaseError::fail("unreadable"))?;
            for cell in (0..=u8::MAX).map(Cell) {
                prop_assert_eq!(summary.count(cell), figures.count(cell));
                for part in PERCENTILES {
                    let (shown, exact) = (summary.percentile(cell, part), figures.percentile(cell, part));
                    prop_assert_eq!(shown.is_some(), exact.is_some());
                    prop_assert!((shown.unwrap_or_default() - exact.unwrap_or_default()).abs() <= 0.001 + exact.unwrap_or_default() * 1e-9);
                }
            }
            let entries = vec![(Group::ALL, figures.clone()), (Group::new(Dimension(7), member), figures)];
            prop_assert_eq!(entries_from_bytes(&entries_to_bytes(&entries)), Ok(entries));
        }

        #[test]
        fn bytes_that_are_no_figures_are_refused_without_harm(bytes in prop::collection::vec(any::<u8>(), 0..64)) {
            let _ = Figures::from_bytes(&bytes);
            let _ = entries_from_bytes(&bytes);
        }
    }

    #[test]
    fn usual_figures_are_short() {
        let mut figures = Figures::default();
        figures.add_count(Cell(10), 3);
        figures.add_count(Cell(11), -3);
        figures.add_sample(Cell(12), 3_600_000);
        assert!(figures.to_bytes().len() < 32, "{}", figures.to_bytes().len());
    }
}
