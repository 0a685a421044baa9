//! What was looked for, marked in the texts of what was found.

use std::collections::BTreeSet;

use levenshtein_automata::DFA;

use super::super::Highlight;
use super::super::language::highlight::snippet;
use super::super::language::typos::typos_of;
use super::super::language::{Clause, Query};
use super::words::{fewest_edits, typos};

/// Places that are shown of one hit, and about how long each is.
const HIGHLIGHTS_MAX: usize = 3;
const SNIPPET_CHARS_MAX: usize = 160;
/// Texts of one answer that are looked at for places, some ten milliseconds in all. Two hundred hits with a page of text each have
/// less. Beyond it long texts are passed over, so that the names of further hits are still marked.
const TEXT_BYTES_MAX: usize = 1 << 20;

/// What makes a word of a text one that was looked for.
pub struct Marks {
    whole: BTreeSet<String>,
    starts: Vec<String>,
    typos: Vec<DFA>,
    /// How much text is still looked at.
    left_bytes: usize,
}

impl Marks {
    pub fn of(query: &Query) -> Self {
        let mut marks =
            Marks { whole: BTreeSet::new(), starts: Vec::new(), typos: Vec::new(), left_bytes: TEXT_BYTES_MAX };
        for clause in &query.must {
            match clause {
                Clause::Words { tokens, .. } => {
                    let Some((last, before)) = tokens.split_last() else { continue };
                    marks.whole.extend(before.iter().cloned());
                    marks.starts.push(last.clone());
                    if before.is_empty() && typos_of(last) > 0 {
                        marks.typos.push(typos(last, typos_of(last)));
                    }
                }
                Clause::Phrase(tokens) => marks.whole.extend(tokens.iter().cloned()),
                Clause::Number(_) | Clause::Field { .. } => {}
            }
        }
        marks
    }

    fn is_empty(&self) -> bool {
        self.whole.is_empty() && self.starts.is_empty()
    }

    fn has(&self, token: &str) -> bool {
        self.whole.contains(token)
            || self.starts.iter().any(|start| token.starts_with(start.as_str()))
            || self.typos.iter().any(|word| fewest_edits(word, token.as_bytes()).is_some())
    }

    /// The first places in the texts of the next hit.
    pub fn highlights(&mut self, texts: &[(String, String)]) -> Vec<Highlight> {
        let mut found = Vec::new();
        for (field, text) in texts {
            if found.len() == HIGHLIGHTS_MAX || self.is_empty() {
                break;
            }
            let Some(left_bytes) = self.left_bytes.checked_sub(text.len()) else { continue };
            self.left_bytes = left_bytes;
            if let Some(snippet) = snippet(text, |token| self.has(token), SNIPPET_CHARS_MAX) {
                found.push(Highlight { field: field.clone(), snippet });
            }
        }
        found
    }
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::super::super::language::parse;
    use super::*;

    fn shown(marks: &mut Marks, texts: &[&str]) -> Vec<String> {
        let texts: Vec<(String, String)> = texts.iter().map(|&text| ("name".to_owned(), text.to_owned())).collect();
        marks.highlights(&texts).into_iter().map(|highlight| highlight.snippet).collect()
    }

    #[test]
    fn words_are_marked_as_they_are_found() {
        for (q, text, snippet) in [
            ("print", "the printer", "the <em>printer</em>"),
            ("pirnter", "the printers", "the <em>printers</em>"),
            ("\"print\"", "print printer", "<em>print</em> printer"),
            ("web-0", "web 01, website", "<em>web</em> <em>01</em>, website"),
            ("floor -printer", "printer floor", "printer <em>floor</em>"),
        ] {
            let mut marks = Marks::of(&parse(q).unwrap());
            assert_eq!(shown(&mut marks, &[text]), [snippet], "{q}");
        }
    }

    #[test]
    fn a_hit_shows_the_first_places_and_none_of_what_fields_compare() {
        let mut marks = Marks::of(&parse("a type:ticket").unwrap());
        assert_eq!(shown(&mut marks, &["a 1", "b", "a 2", "a 3", "a 4"]).len(), HIGHLIGHTS_MAX);
        let mut marks = Marks::of(&parse("type:ticket #7").unwrap());
        assert!(shown(&mut marks, &["ticket 7"]).is_empty());
        assert_eq!(marks.left_bytes, TEXT_BYTES_MAX);
    }

    #[test]
    fn no_more_text_is_looked_at_than_one_answer_may() {
        let mut marks = Marks::of(&parse("needle").unwrap());
        let long = format!("needle {}", "x ".repeat(TEXT_BYTES_MAX / 4));
        assert_eq!(shown(&mut marks, &[long.as_str(), "needle 1"]).len(), 2);
        assert_eq!(shown(&mut marks, &[long.as_str(), "needle 2"]), ["<em>needle</em> 2"]);
    }
}
