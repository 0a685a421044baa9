//! Lines of a CSV file, as RFC 4180 has them, that no spreadsheet takes for formulas.

use std::fmt::Display;
use std::io::Write;

/// What a spreadsheet takes for the beginning of a formula.
const FORMULA: [char; 11] = ['=', '+', '-', '@', '\t', '\r', '\n', '\u{ff1d}', '\u{ff0b}', '\u{ff0d}', '\u{ff20}'];

/// Whether a text gets an apostrophe: also one that has some already, so that they can be told apart again.
fn is_guarded(text: &str) -> bool {
    text.trim_start_matches('\'').starts_with(FORMULA)
}

/// A field of such a file as it was before it was written.
pub fn unguarded(text: &str) -> &str {
    text.strip_prefix('\'').filter(|rest| is_guarded(rest)).unwrap_or(text)
}

/// One line, field by field.
pub struct CsvLine<'a> {
    text: &'a mut Vec<u8>,
    is_first: bool,
}

impl<'a> CsvLine<'a> {
    pub(super) fn new(text: &'a mut Vec<u8>) -> Self {
        CsvLine { text, is_first: true }
    }

    pub(super) fn end(self) {
        self.text.extend_from_slice(b"\r\n");
    }

    fn next(&mut self) {
        if !self.is_first {
            self.text.push(b',');
        }
        self.is_first = false;
    }

    /// A text that may be anybody's. What a spreadsheet would take for a formula gets an apostrophe before it.
    pub fn text(&mut self, text: &str) {
        self.next();
        let guard = if is_guarded(text) { "'" } else { "" };
        if !text.bytes().any(|byte| matches!(byte, b'"' | b',' | b'\r' | b'\n')) {
            self.text.extend_from_slice(guard.as_bytes());
            self.text.extend_from_slice(text.as_bytes());
            return;
        }
        self.text.push(b'"');
        self.text.extend_from_slice(guard.as_bytes());
        for (place, part) in text.split('"').enumerate() {
            if place > 0 {
                self.text.extend_from_slice(b"\"\"");
            }
            self.text.extend_from_slice(part.as_bytes());
        }
        self.text.push(b'"');
    }

    pub fn optional(&mut self, text: Option<&str>) {
        self.text(text.unwrap_or_default());
    }

    /// Something of our own that needs no care, such as a number or a time; nothing is an empty field.
    pub fn plain(&mut self, value: Option<impl Display>) {
        self.next();
        if let Some(value) = value {
            // Writing into memory does not fail.
            let _ = write!(self.text, "{value}");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(fields: &[&str]) -> String {
        let mut text = Vec::new();
        let mut line = CsvLine::new(&mut text);
        for field in fields {
            line.text(field);
        }
        line.end();
        String::from_utf8_lossy(&text).into_owned()
    }

    #[test]
    fn a_field_is_quoted_where_it_must_be() {
        let fields = ["plain", "a,b", "say \"hi\"", "two\nlines", "", " kept "];
        assert_eq!(line(&fields), "plain,\"a,b\",\"say \"\"hi\"\"\",\"two\nlines\",, kept \r\n");
    }

    #[test]
    fn what_was_guarded_is_read_as_it_was() {
        for text in ["=1", "'=1", "''+1", "'quoted'", "plain", "", "\u{ff1d}1", "a'=1"] {
            let written = line(&[text]);
            assert_eq!(unguarded(written.trim_end_matches("\r\n")), text);
        }
    }

    #[test]
    fn nothing_is_a_formula() {
        let fields = ["=1+1", "+1", "-1", "@SUM(A1)", "\t=1", "=\"a\",b", "a=1"];
        assert_eq!(line(&fields), "'=1+1,'+1,'-1,'@SUM(A1),'\t=1,\"'=\"\"a\"\",b\",a=1\r\n");
        let mut text = Vec::new();
        let mut number = CsvLine::new(&mut text);
        number.plain(Some(-1));
        number.plain(None::<i64>);
        number.end();
        assert_eq!(text, b"-1,\r\n");
    }
}
