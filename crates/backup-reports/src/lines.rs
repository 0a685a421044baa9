//! The lines of a stream, and the few of them that are kept to be shown.

use std::collections::VecDeque;

use crate::text::{DETAIL_CHARS_MAX, truncate};

/// What a line means for its run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LineMeaning {
    /// Printed in good runs too: progress, statistics, questions that were answered.
    Noise,
    /// Explains a run that failed, and means nothing where it succeeded: an attempt that was repeated.
    Hint,
    /// Something was not done as asked.
    Problem,
}

/// How many lines are kept of the beginning, where the first cause is, and of the end, where a tool says why it gave up.
const FIRST_MAX: usize = 5;
const LAST_MAX: usize = 3;

/// How many lines are read of the beginning of a stream, and how many of its end. A line of a tool has 100 characters or
/// more where there are many of them, so that 16 MiB of real output are read whole; shorter lines are an attack on time.
const LINES_MAX: usize = 100_000;

const LINE_ENDS: [char; 2] = ['\n', '\r'];

/// Lines without the empty ones. A carriage return ends one as well: progress is written over itself.
pub fn split_lines(stream: &str) -> impl Iterator<Item = &str> {
    let head_end = stream.match_indices(LINE_ENDS).nth(LINES_MAX - 1).map_or(stream.len(), |(end, _)| end);
    let (head, rest) = stream.split_at(head_end);
    let tail_start = rest.rmatch_indices(LINE_ENDS).nth(LINES_MAX - 1).map_or(0, |(start, _)| start);
    head.split(LINE_ENDS)
        .chain(rest[tail_start..].split(LINE_ENDS))
        .map(|line| line.trim_matches(['\u{feff}', ' ', '\t', '\0']))
        .filter(|line| !line.is_empty())
}

#[derive(Debug, Default)]
pub struct KeptLines {
    pub count: u64,
    first: Vec<String>,
    last: VecDeque<String>,
}

impl KeptLines {
    /// Takes a line that was cleaned.
    pub fn push(&mut self, line: &str) {
        self.count += 1;
        let line = truncate(line, DETAIL_CHARS_MAX);
        if self.first.len() < FIRST_MAX {
            self.first.push(line);
            return;
        }
        if self.last.len() == LAST_MAX {
            self.last.pop_front();
        }
        self.last.push_back(line);
    }

    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// The newest first: a tool ends with the reason why it gave up.
    pub fn newest_first(&self) -> impl Iterator<Item = &str> {
        self.last.iter().rev().chain(self.first.iter().rev()).map(String::as_str)
    }

    /// In the order they were printed, with one line for those that were left out.
    pub fn into_shown(self) -> Vec<String> {
        let left_out = self.count.saturating_sub((self.first.len() + self.last.len()) as u64);
        let mut shown = self.first;
        if left_out > 0 {
            shown.push(format!("({left_out} more lines)"));
        }
        shown.extend(self.last);
        shown
    }
}
