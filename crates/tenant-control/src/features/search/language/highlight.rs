//! Where in a text the words of a query stand, as HTML that can be shown as it is: everything is escaped, and the only
//! tags are `<em>` and `</em>`. It leaves out which words match, which is for who compares to say.

use std::ops::Range;

use unicode_normalization::char::is_combining_mark;

use super::fold::Tokens;

/// A piece of a text around the first of its words that match, and as many of the later ones as fit with it; `None` if
/// none match. A word is whole or absent, and `…` stands where the text goes on.
///
/// `matches` is asked about each folded token. `chars_max` counts the characters of the text itself, neither the tags
/// and escapes nor the `…`. A single word that is longer than that is cut, as a piece without a match would say
/// nothing.
pub fn snippet(text: &str, matches: impl Fn(&str) -> bool, chars_max: usize) -> Option<String> {
    let chars_max = chars_max.max(1);
    let words = words(text, matches, chars_max);
    let first = words.iter().position(|word| word.is_match)?;
    let piece = piece(text, &words, first, chars_max);
    Some(render(text, &words, piece))
}

/// The place of a word in the text.
struct Word {
    place: Range<usize>,
    is_match: bool,
}

/// The words of a text, as far as a piece of it can reach: it begins with the first match or before it, and nothing that is
/// further behind that than a piece is long can be shown.
fn words(text: &str, matches: impl Fn(&str) -> bool, chars_max: usize) -> Vec<Word> {
    let mut words: Vec<Word> = Vec::new();
    let mut reach: Option<usize> = None;
    for token in Tokens::of(text) {
        if reach.is_some_and(|reach| token.start >= reach) {
            break;
        }
        let is_match = matches(&token.text);
        add(&mut words, token.start..token.end, is_match);
        if is_match && reach.is_none() {
            reach = words.last().map(|word| skip_chars(text, word.place.start, chars_max));
        }
    }
    words
}

/// Adds the place of a token. Those of one character with several tokens are one, which matches if one of them does.
fn add(words: &mut Vec<Word>, place: Range<usize>, is_match: bool) {
    match words.last_mut().filter(|word| place.start < word.place.end) {
        Some(word) => {
            word.place.end = word.place.end.max(place.end);
            word.is_match |= is_match;
        }
        None => words.push(Word { place, is_match }),
    }
}

/// Where so many characters end that begin at `start`.
fn skip_chars(text: &str, start: usize, chars: usize) -> usize {
    let rest = text.get(start..).unwrap_or_default();
    rest.char_indices().nth(chars).map_or(text.len(), |(at, _)| start + at)
}

/// What to show: the matches first, then as much before them as after them, then whatever still fits.
fn piece(text: &str, words: &[Word], first: usize, chars_max: usize) -> Range<usize> {
    let (before, from_first) = words.split_at(first);
    let mut start = from_first.first().map_or(0, |word| word.place.start);
    let (mut end, mut left) = (start, chars_max);
    let matching = from_first.iter().filter(|word| word.is_match);
    grow_after(text, &mut end, &mut left, matching.map(|word| word.place.end));
    if end == start {
        return start..cut(text, start, chars_max);
    }
    let starts = || before.iter().rev().map(|word| word.place.start).chain([0]);
    let mut left_before = left / 2;
    left -= left_before;
    grow_before(text, &mut start, &mut left_before, starts());
    left += left_before;
    let matched = end;
    let ends = from_first.iter().map(|word| word.place.end).chain([text.len()]);
    grow_after(text, &mut end, &mut left, ends.filter(|place| *place > matched));
    let reached = start;
    grow_before(text, &mut start, &mut left, starts().filter(|place| *place < reached));
    start..end
}

/// Moves the end on to the last of the places, each after the one before, that the characters left reach.
fn grow_after(text: &str, end: &mut usize, left: &mut usize, places: impl Iterator<Item = usize>) {
    for place in places {
        let Some(remains) = left_after(text, *end..place, *left) else { return };
        (*end, *left) = (place, remains);
    }
}

/// The same towards the beginning.
fn grow_before(text: &str, start: &mut usize, left: &mut usize, places: impl Iterator<Item = usize>) {
    for place in places {
        let Some(remains) = left_after(text, place..*start, *left) else { return };
        (*start, *left) = (place, remains);
    }
}

/// What is left of so many characters after a piece of text; `None` if it has more. It counts no further than it must.
fn left_after(text: &str, piece: Range<usize>, left: usize) -> Option<usize> {
    let count = text.get(piece)?.chars().take(left.saturating_add(1)).count();
    left.checked_sub(count)
}

/// Where a word that is too long ends: before a character, not between one and its marks. Only if there is nothing but
/// marks they are cut off as well, as a word of one letter and a thousand marks must not have its way.
fn cut(text: &str, start: usize, chars_max: usize) -> usize {
    let rest = text.get(start..).unwrap_or_default();
    let within = rest.char_indices().take(chars_max.saturating_add(1));
    let edges = within.skip(1).filter(|(_, c)| !belongs_to_the_one_before(*c)).map(|(at, _)| at);
    edges.last().map_or_else(|| skip_chars(text, start, chars_max), |at| start + at)
}

/// Marks, joiners, and the vowels and finals of Hangul.
fn belongs_to_the_one_before(c: char) -> bool {
    is_combining_mark(c) || matches!(c, '\u{200c}' | '\u{200d}' | '\u{1160}'..='\u{11ff}')
}

fn render(text: &str, words: &[Word], piece: Range<usize>) -> String {
    let mut html = String::with_capacity(piece.len() + 32);
    if piece.start > 0 {
        html.push('…');
    }
    let mut at = piece.start;
    for place in marked(words, &piece) {
        escape(&mut html, text.get(at..place.start).unwrap_or_default());
        html.push_str("<em>");
        escape(&mut html, text.get(place.clone()).unwrap_or_default());
        html.push_str("</em>");
        at = place.end;
    }
    escape(&mut html, text.get(at..piece.end).unwrap_or_default());
    if piece.end < text.len() {
        html.push('…');
    }
    html
}

/// The places to mark within a piece. Words that touch, as they do in Chinese and Japanese, are marked together.
fn marked(words: &[Word], piece: &Range<usize>) -> Vec<Range<usize>> {
    let mut places: Vec<Range<usize>> = Vec::new();
    for word in words.iter().filter(|word| word.is_match) {
        let place = word.place.start.max(piece.start)..word.place.end.min(piece.end);
        if place.is_empty() {
            continue;
        }
        match places.last_mut().filter(|last| last.end == place.start) {
            Some(last) => last.end = place.end,
            None => places.push(place),
        }
    }
    places
}

/// Adds text to HTML. What would move a terminal or a line becomes a space, and what would turn the text around is left
/// out: it would reach beyond the piece.
fn escape(html: &mut String, text: &str) {
    for c in text.chars() {
        match c {
            '&' => html.push_str("&amp;"),
            '<' => html.push_str("&lt;"),
            '>' => html.push_str("&gt;"),
            '"' => html.push_str("&quot;"),
            '\'' => html.push_str("&#39;"),
            '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' => {}
            '\u{2028}' | '\u{2029}' => html.push(' '),
            c if c.is_control() => html.push(' '),
            c => html.push(c),
        }
    }
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests")]
mod tests {
    use std::cell::Cell;

    use super::super::chance::Chance;
    use super::super::fold::tokens;
    use super::*;

    const PIECES: [&str; 20] = [
        "hit",
        "Hit ",
        "miss",
        " ",
        " ",
        "<em>",
        "</em>",
        "&",
        "\"",
        "'",
        "\n",
        "\0",
        "\u{202e}",
        "e\u{301}",
        "½",
        "東",
        "…",
        "-",
        "hit\u{301}",
        "&amp;",
    ];

    fn is_hit(token: &str) -> bool {
        token.starts_with("hit") || token == "東" || token == "京"
    }

    fn found(text: &str, chars_max: usize) -> Option<String> {
        snippet(text, is_hit, chars_max)
    }

    /// As [`snippet`], but all of the text is cut into words.
    fn found_in_all(text: &str, chars_max: usize, matches: impl Fn(&str) -> bool) -> Option<String> {
        let mut words = Vec::new();
        for token in tokens(text) {
            add(&mut words, token.start..token.end, matches(&token.text));
        }
        let first = words.iter().position(|word| word.is_match)?;
        Some(render(text, &words, piece(text, &words, first, chars_max.max(1))))
    }

    #[test]
    fn matches_are_marked_and_everything_else_is_text() {
        for (text, html) in [
            ("a hit.", "a <em>hit</em>."),
            ("HÍT & <b>hits</b> 'x\"", "<em>HÍT</em> &amp; &lt;b&gt;<em>hits</em>&lt;/b&gt; &#39;x&quot;"),
            ("a\r\n\thit\u{7}", "a   <em>hit</em> "),
            ("\u{202e}hit\u{2066}s\u{202c} x", "<em>hits</em> x"),
            ("hi\u{301}t\u{301}!", "<em>hi\u{301}t\u{301}</em>!"),
            ("in 東京都", "in <em>東京</em>都"),
        ] {
            assert_eq!(found(text, 100).as_deref(), Some(html), "{text}");
        }
        assert_eq!((found("", 9), found("nothing", 9), found("…", 9)), (None, None, None));
    }

    #[test]
    fn a_long_text_is_cut_between_words() {
        for (text, chars_max, html) in [
            ("one two three hit four five six", 15, "…three <em>hit</em> four…"),
            ("hit four five six", 8, "<em>hit</em> four…"),
            ("one two three hit", 9, "…three <em>hit</em>"),
            ("hit a hit b c d hit", 9, "<em>hit</em> a <em>hit</em>…"),
            ("one, hit, two", 3, "…<em>hit</em>…"),
            ("one hit", 0, "…<em>h</em>…"),
            ("x hitting", 4, "…<em>hitt</em>…"),
            ("hite\u{301}e\u{301}e\u{301}", 6, "<em>hite\u{301}</em>…"),
            ("hit\u{301}\u{301}\u{301}", 4, "<em>hi</em>…"),
            ("東\u{e0100}\u{e0100}\u{e0100}", 2, "<em>東\u{e0100}</em>…"),
            ("a & b < hit > c & d", 11, "…b &lt; <em>hit</em> &gt; c…"),
        ] {
            assert_eq!(found(text, chars_max).as_deref(), Some(html), "{text}");
        }
    }

    #[test]
    fn a_text_is_read_no_further_than_it_is_shown() {
        for (text, chars_max, asked) in [
            (format!("hit {}", "miss ".repeat(10_000)), 20, 5),
            (format!("{}hit {}", "miss ".repeat(100), "miss ".repeat(10_000)), 20, 105),
            ("miss ".repeat(100), 20, 100),
            (format!("hit{}", "miss ".repeat(10_000)), 3, 1),
        ] {
            let count = Cell::new(0);
            let matches = |token: &str| {
                count.set(count.get() + 1);
                is_hit(token)
            };
            assert_eq!(snippet(&text, matches, chars_max), found_in_all(&text, chars_max, is_hit));
            assert_eq!(count.get(), asked);
        }
    }

    #[test]
    fn what_is_not_read_changes_nothing() {
        let mut chance = Chance::new(4);
        for _ in 0..20_000 {
            let (text, chars_max) = (chance.text(&PIECES, 40), chance.below(40));
            assert_eq!(found(&text, chars_max), found_in_all(&text, chars_max, is_hit), "{text:?} {chars_max}");
            let is_half = |token: &str| token.starts_with('1') || token.starts_with('2');
            let expected = found_in_all(&text, chars_max, is_half);
            assert_eq!(snippet(&text, is_half, chars_max), expected, "{text:?} {chars_max}");
        }
    }

    #[test]
    fn any_text_gives_html_that_is_safe_and_balanced() {
        let mut chance = Chance::new(3);
        for _ in 0..10_000 {
            let (text, chars_max) = (chance.text(&PIECES, 40), chance.below(60));
            let Some(html) = found(&text, chars_max) else {
                assert!(tokens(&text).iter().all(|token| !token.text.starts_with("hit")), "{text:?}");
                continue;
            };
            let parts: Vec<&str> = html.split("<em>").collect();
            assert!(parts.len() > 1 && !parts[0].contains("</em>"), "{html}");
            for part in &parts[1..] {
                let (marked, _) = part.split_once("</em>").unwrap();
                assert!(!marked.is_empty(), "{html}");
            }
            let shown = unescaped(&html.replace("<em>", "").replace("</em>", ""));
            assert!(shown.chars().count() <= chars_max.max(1) + 2, "{text:?} {chars_max}: {html}");
        }
    }

    fn unescaped(html: &str) -> String {
        assert!(!html.contains(|c: char| matches!(c, '<' | '>' | '"' | '\'' | '\u{202e}') || c.is_control()), "{html}");
        let entities = [("&lt;", "<"), ("&gt;", ">"), ("&quot;", "\""), ("&#39;", "'")];
        let html = entities.iter().fold(html.to_owned(), |html, (entity, c)| html.replace(entity, c));
        assert_eq!(html.matches('&').count(), html.matches("&amp;").count(), "{html}");
        html.replace("&amp;", "&")
    }
}
