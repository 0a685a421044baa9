//! Patterns of schemas, which are written as in ECMA-262, for the engine of `regex`, which matches in linear time.

use std::iter::Peekable;
use std::str::Chars;

use expressions::pattern::{check_length, count_regex_positions};
use regex::{Regex, RegexBuilder};

const PATTERN_BYTES: usize = 64 << 10;
const PATTERN_CACHE_BYTES: usize = 256 << 10;

/// The pattern, ready to match, or nothing if it is invalid or becomes too large.
pub fn build_pattern(pattern: &str) -> Option<Regex> {
    let text = translate_pattern(pattern)?;
    RegexBuilder::new(&text).size_limit(PATTERN_BYTES).dfa_size_limit(PATTERN_CACHE_BYTES).build().ok()
}

/// The number of positions of a pattern once repetitions are expanded, or why it is invalid.
pub fn count_positions(pattern: &str) -> Result<usize, String> {
    check_length(pattern)?;
    count_regex_positions(translate_pattern(pattern).as_deref().unwrap_or(pattern))
}

fn translate_pattern(pattern: &str) -> Option<String> {
    PatternTranslation { letters: pattern.chars().peekable(), text: String::new() }.translate()
}

/// What comes before the next letter of a class.
#[derive(Clone, Copy, PartialEq)]
enum ClassPlace {
    Start,
    AfterLetter,
    /// After `\d` and its kind, which cannot begin a range.
    AfterSet,
    AfterRange,
}

impl ClassPlace {
    fn advance(self) -> ClassPlace {
        if self == ClassPlace::AfterRange { ClassPlace::Start } else { ClassPlace::AfterLetter }
    }
}

/// `\d`, `\w` and `\s` match what ECMA-262 says, and in a class `[`, `&&`, `~~` and `--` are letters: for `regex` they
/// are operators.
struct PatternTranslation<'a> {
    letters: Peekable<Chars<'a>>,
    text: String,
}

impl PatternTranslation<'_> {
    fn translate(mut self) -> Option<String> {
        while let Some(letter) = self.letters.next() {
            match letter {
                '\\' => match self.letters.next()? {
                    // The bell is no escape of ECMA-262.
                    'a' => return None,
                    escaped => self.push_escape(escaped, find_set(escaped)),
                },
                '[' => self.translate_class()?,
                _ => self.text.push(letter),
            }
        }
        Some(self.text)
    }

    fn push_escape(&mut self, escaped: char, set: Option<&str>) {
        match set {
            Some(set) => self.text.push_str(set),
            None => self.text.extend(['\\', escaped]),
        }
    }

    fn translate_class(&mut self) -> Option<()> {
        self.text.push('[');
        self.text.extend(self.letters.next_if_eq(&'^'));
        // The first letter can be the one that ends a class.
        self.text.extend(self.letters.next_if_eq(&']'));
        let mut place = ClassPlace::Start;
        while let Some(letter) = self.letters.next() {
            match letter {
                ']' => {
                    self.text.push(']');
                    return Some(());
                }
                '\\' => {
                    let escaped = self.letters.next()?;
                    let set = find_set(escaped);
                    if set.is_some() && place == ClassPlace::AfterRange {
                        return None;
                    }
                    self.push_escape(escaped, set);
                    place = if set.is_some() { ClassPlace::AfterSet } else { place.advance() };
                }
                '-' => place = self.translate_hyphen(place)?,
                '[' | '&' | '~' => {
                    self.text.extend(['\\', letter]);
                    place = place.advance();
                }
                _ => {
                    self.text.push(letter);
                    place = place.advance();
                }
            }
        }
        // A class without an end is refused by `regex`.
        Some(())
    }

    /// A hyphen between two letters makes a range; any other is a letter.
    fn translate_hyphen(&mut self, place: ClassPlace) -> Option<ClassPlace> {
        let next = self.letters.peek().copied();
        match place {
            ClassPlace::AfterLetter if next != Some(']') => {
                self.text.push('-');
                return Some(ClassPlace::AfterRange);
            }
            ClassPlace::AfterSet if next == Some('-') => {
                self.letters.next();
                self.text.push_str(r"\-\-");
            }
            ClassPlace::AfterSet if next != Some(']') => return None,
            _ => self.text.push_str(r"\-"),
        }
        Some(place.advance())
    }
}

fn find_set(escaped: char) -> Option<&'static str> {
    match escaped {
        'd' => Some("[0-9]"),
        'D' => Some("[^0-9]"),
        'w' => Some("[0-9A-Za-z_]"),
        'W' => Some("[^0-9A-Za-z_]"),
        's' => Some(r"[\t-\r\x20\u{a0}\u{1680}\u{2000}-\u{200a}\u{2028}\u{2029}\u{202f}\u{205f}\u{3000}\u{feff}]"),
        'S' => Some(r"[^\t-\r\x20\u{a0}\u{1680}\u{2000}-\u{200a}\u{2028}\u{2029}\u{202f}\u{205f}\u{3000}\u{feff}]"),
        _ => None,
    }
}
