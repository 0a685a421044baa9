//! Lines of CSV files (RFC 4180), guarded against formula injection.
//!
//! In many locales spreadsheets separate fields by semicolons and give commas and quotes no meaning: one field of ours
//! can become several fields or lines there. So a text is guarded at every position where a spreadsheet may start a field.

use std::borrow::Cow;
use std::fmt::Display;
use std::io::Write;

/// Characters that start a formula.
const FORMULA: [char; 8] = ['=', '+', '-', '@', '\u{ff1d}', '\u{ff0b}', '\u{ff0d}', '\u{ff20}'];

/// Characters that some spreadsheets skip before a formula.
const SKIPPED: [char; 3] = ['\t', '\r', '\n'];

/// Characters that end a field in some spreadsheets.
const ENDS: [char; 4] = [';', '\t', '\r', '\n'];

/// Whether a text gets an apostrophe. One that begins with apostrophes before a formula gets another, so that
/// [`unguard_text`] can restore it.
fn is_guarded(text: &str, is_first: bool) -> bool {
    if is_first {
        let rest = text.trim_start_matches('\'');
        return rest.starts_with(FORMULA) || rest.starts_with(SKIPPED);
    }
    // A quote is written as two, which a spreadsheet ignores at the start of a field.
    text.trim_start_matches(['\'', '"']).starts_with(FORMULA)
}

/// The positions at which a spreadsheet may start a field, each with the text from there on.
fn field_starts(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let behind = text.match_indices(ENDS).map(|(at, end)| at + end.len());
    std::iter::once(0).chain(behind).filter_map(move |at| text.get(at..).map(|rest| (at, rest)))
}

/// Puts an apostrophe before everything that a spreadsheet may read as a formula.
fn guard_text(text: &str) -> Cow<'_, str> {
    let starts = field_starts(text).filter(|(at, rest)| is_guarded(rest, *at == 0));
    let (mut written, mut done) = (String::new(), 0);
    for (at, _) in starts {
        written.push_str(text.get(done..at).unwrap_or_default());
        written.push('\'');
        done = at;
    }
    append_rest(text, written, done)
}

/// The inverse of `guard_text`, for a field that was read from a file.
pub fn unguard_text(text: &str) -> Cow<'_, str> {
    let starts =
        field_starts(text).filter(|(at, rest)| rest.strip_prefix('\'').is_some_and(|rest| is_guarded(rest, *at == 0)));
    let (mut read, mut done) = (String::new(), 0);
    for (at, _) in starts {
        read.push_str(text.get(done..at).unwrap_or_default());
        done = at + 1;
    }
    append_rest(text, read, done)
}

/// Appends the unchanged rest of `text` to the changed part; borrows the text if nothing changed.
fn append_rest(text: &str, mut changed: String, done: usize) -> Cow<'_, str> {
    if changed.is_empty() && done == 0 {
        return Cow::Borrowed(text);
    }
    changed.push_str(text.get(done..).unwrap_or_default());
    Cow::Owned(changed)
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

    pub(super) fn end_line(self) {
        self.text.extend_from_slice(b"\r\n");
    }

    fn start_field(&mut self) {
        if !self.is_first {
            self.text.push(b',');
        }
        self.is_first = false;
    }

    /// An untrusted text, guarded against formulas.
    pub fn push_text(&mut self, text: &str) {
        self.push_field(&guard_text(text));
    }

    /// An object or a list as JSON, with untrusted texts. Semicolons, which end a field in some spreadsheets, are
    /// escaped, so the JSON keeps its meaning.
    pub fn push_json(&mut self, json: &str) {
        if json.contains(';') {
            self.push_field(&json.replace(';', "\\u003b"));
        } else {
            self.push_field(json);
        }
    }

    fn push_field(&mut self, text: &str) {
        self.start_field();
        if !text.bytes().any(|byte| matches!(byte, b'"' | b',' | b'\r' | b'\n')) {
            self.text.extend_from_slice(text.as_bytes());
            return;
        }
        self.text.push(b'"');
        for (index, part) in text.split('"').enumerate() {
            if index > 0 {
                self.text.extend_from_slice(b"\"\"");
            }
            self.text.extend_from_slice(part.as_bytes());
        }
        self.text.push(b'"');
    }

    pub fn push_optional(&mut self, text: Option<&str>) {
        self.push_text(text.unwrap_or_default());
    }

    /// A trusted value that needs no guard, such as a number or a time. `None` is an empty field.
    pub fn push_plain(&mut self, value: Option<impl Display>) {
        self.start_field();
        if let Some(value) = value {
            // Writing into a `Vec` does not fail.
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
            line.push_text(field);
        }
        line.end_line();
        String::from_utf8_lossy(&text).into_owned()
    }

    #[test]
    fn a_field_is_quoted_where_it_must_be() {
        let fields = ["plain", "a,b", "say \"hi\"", "two\nlines", "", " kept "];
        assert_eq!(line(&fields), "plain,\"a,b\",\"say \"\"hi\"\"\",\"two\nlines\",, kept \r\n");
    }

    #[test]
    fn what_was_guarded_is_read_as_it_was() {
        for text in [
            "=1",
            "'=1",
            "''+1",
            "'quoted'",
            "plain",
            "",
            "\u{ff1d}1",
            "a'=1",
            "x;=1",
            "x;'=1;''-2",
            ";",
            "a;b",
            "'",
            "=;=;'=",
        ] {
            let written = line(&[text]);
            assert_eq!(unguard_text(written.trim_end_matches("\r\n")), text);
            assert_eq!(unguard_text(&guard_text(&guard_text(text))), guard_text(text), "{text}");
        }
        for text in ["\t=1", "'\t'=1", "\r\n=1", "a\n=1", "a\r\n'@1", "\ta", "\t\t=", "a\t\u{ff20}1", ";\"=1", ";'\"'-"]
        {
            assert_eq!(unguard_text(&guard_text(text)), text);
        }
    }

    #[test]
    fn nothing_is_a_formula() {
        let fields = ["=1+1", "+1", "-1", "@SUM(A1)", "\t=1", "=\"a\",b", "a=1"];
        assert_eq!(line(&fields), "'=1+1,'+1,'-1,'@SUM(A1),'\t'=1,\"'=\"\"a\"\",b\",a=1\r\n");
        // The same where semicolons separate fields, and quotes within a field are text.
        let fields = ["x;=1", "x;y;-1;'@1", "a\t+1", "a;b", "a,\n=1", ";;\u{ff1d}1", ";\"=1"];
        assert_eq!(line(&fields), "x;'=1,x;y;'-1;''@1,a\t'+1,a;b,\"a,\n'=1\",;;'\u{ff1d}1,\";'\"\"=1\"\r\n");
        let mut text = Vec::new();
        let mut number = CsvLine::new(&mut text);
        number.push_plain(Some(-1));
        number.push_plain(None::<i64>);
        number.end_line();
        assert_eq!(text, b"-1,\r\n");
    }

    #[test]
    fn json_stays_what_it_is() {
        let json = r#"{"a":"x;=1;'-2","b":[1,"y"]}"#;
        let mut text = Vec::new();
        let mut line = CsvLine::new(&mut text);
        line.push_json(json);
        line.end_line();
        let text = String::from_utf8_lossy(&text);
        assert!(!text.contains(';'), "{text}");
        let field = text.trim_end().trim_matches('"').replace("\"\"", "\"");
        let read = |text: &str| serde_json::from_str::<serde_json::Value>(text).ok();
        assert!(read(json).is_some());
        assert_eq!(read(&unguard_text(&field)), read(json));
    }
}
