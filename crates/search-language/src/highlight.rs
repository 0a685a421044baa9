//! Snippets of a text with the matching words marked, as safe HTML: everything is escaped, and the only tags are `<em>` and
//! `</em>`. The caller decides which words match.

use std::ops::Range;

use unicode_normalization::char::is_combining_mark;

use super::fold::{TextToken, TextTokens};

/// Renders the part of a text around its first match, with as many later matches as fit; `None` if no word matches. Words
/// are shown whole or not at all, and `…` marks where the text continues.
///
/// `matching` receives each token in order and returns how many of the last tokens match together: none, this one
/// alone, or the phrase that it ends. `chars_max` counts characters of the text, without tags, escapes and `…`. A single
/// word longer than that is cut, because a snippet without a match would say nothing.
pub fn render_snippet(text: &str, matching: impl FnMut(&TextToken) -> usize, chars_max: usize) -> Option<String> {
    let chars_max = chars_max.max(1);
    let words = find_words(text, matching, chars_max);
    let first = words.iter().position(|word| word.is_match)?;
    let piece = choose_range(text, &words, first, chars_max);
    Some(render_html(text, &words, piece))
}

/// The byte range of a word in the text.
struct WordSpan {
    range: Range<usize>,
    /// How many tokens share the range.
    tokens: usize,
    is_match: bool,
}

/// The words of a text, up to where a snippet can reach: it begins at or before the first match, so nothing further than
/// its length behind that match can be shown. A phrase that ends beyond is not found.
fn find_words(text: &str, mut matching: impl FnMut(&TextToken) -> usize, chars_max: usize) -> Vec<WordSpan> {
    let mut words: Vec<WordSpan> = Vec::new();
    let mut reach: Option<usize> = None;
    for token in TextTokens::new(text) {
        if reach.is_some_and(|reach| token.start >= reach) {
            break;
        }
        add_span(&mut words, token.start..token.end);
        let first = mark_matches(&mut words, matching(&token));
        reach = reach.or_else(|| first.map(|first| skip_chars(text, first, chars_max)));
    }
    words
}

/// Adds the range of a token. Tokens of one character share a range.
fn add_span(words: &mut Vec<WordSpan>, range: Range<usize>) {
    match words.last_mut().filter(|word| range.start < word.range.end) {
        Some(word) => {
            word.range.end = word.range.end.max(range.end);
            word.tokens += 1;
        }
        None => words.push(WordSpan { range, tokens: 1, is_match: false }),
    }
}

/// Marks the words of the last `tokens` tokens as matches. Returns where the first of them begins; `None` if there are none.
fn mark_matches(words: &mut [WordSpan], mut tokens: usize) -> Option<usize> {
    let mut first = None;
    for word in words.iter_mut().rev() {
        if tokens == 0 {
            break;
        }
        tokens = tokens.saturating_sub(word.tokens);
        word.is_match = true;
        first = Some(word.range.start);
    }
    first
}

/// The byte offset `chars` characters after `start`.
fn skip_chars(text: &str, start: usize, chars: usize) -> usize {
    let rest = text.get(start..).unwrap_or_default();
    rest.char_indices().nth(chars).map_or(text.len(), |(at, _)| start + at)
}

/// Chooses the range to show: the matches first, then as much before them as after them, then whatever still fits.
fn choose_range(text: &str, words: &[WordSpan], first: usize, chars_max: usize) -> Range<usize> {
    let (before, from_first) = words.split_at(first);
    let mut start = from_first.first().map_or(0, |word| word.range.start);
    let (mut end, mut left) = (start, chars_max);
    let matching = from_first.iter().filter(|word| word.is_match);
    grow_after(text, &mut end, &mut left, matching.map(|word| word.range.end));
    if end == start {
        return start..cut_word(text, start, chars_max);
    }
    let starts = || before.iter().rev().map(|word| word.range.start).chain([0]);
    let mut left_before = left / 2;
    left -= left_before;
    grow_before(text, &mut start, &mut left_before, starts());
    left += left_before;
    let matched = end;
    let ends = from_first.iter().map(|word| word.range.end).chain([text.len()]);
    grow_after(text, &mut end, &mut left, ends.filter(|offset| *offset > matched));
    let reached = start;
    grow_before(text, &mut start, &mut left, starts().filter(|offset| *offset < reached));
    start..end
}

/// Moves the end to the last of the ascending offsets that the remaining characters reach.
fn grow_after(text: &str, end: &mut usize, left: &mut usize, offsets: impl Iterator<Item = usize>) {
    for offset in offsets {
        let Some(remains) = left_after(text, *end..offset, *left) else { return };
        (*end, *left) = (offset, remains);
    }
}

/// Moves the start towards the beginning in the same way.
fn grow_before(text: &str, start: &mut usize, left: &mut usize, offsets: impl Iterator<Item = usize>) {
    for offset in offsets {
        let Some(remains) = left_after(text, offset..*start, *left) else { return };
        (*start, *left) = (offset, remains);
    }
}

/// How many of `left` characters remain after a piece of text; `None` if the piece has more. Counting stops at that point.
fn left_after(text: &str, piece: Range<usize>, left: usize) -> Option<usize> {
    let count = text.get(piece)?.chars().take(left.saturating_add(1)).count();
    left.checked_sub(count)
}

/// Where to cut a word that is too long: between characters, not between one and its marks. Marks are cut only if there is
/// no other boundary, so that one letter with a thousand marks cannot exceed the limit.
fn cut_word(text: &str, start: usize, chars_max: usize) -> usize {
    let rest = text.get(start..).unwrap_or_default();
    let within = rest.char_indices().take(chars_max.saturating_add(1));
    let edges = within.skip(1).filter(|(_, c)| !belongs_to_the_one_before(*c)).map(|(at, _)| at);
    edges.last().map_or_else(|| skip_chars(text, start, chars_max), |at| start + at)
}

/// Marks, joiners, and the vowels and finals of Hangul.
fn belongs_to_the_one_before(c: char) -> bool {
    is_combining_mark(c) || matches!(c, '\u{200c}' | '\u{200d}' | '\u{1160}'..='\u{11ff}')
}

fn render_html(text: &str, words: &[WordSpan], piece: Range<usize>) -> String {
    let mut html = String::with_capacity(piece.len() + 32);
    if piece.start > 0 {
        html.push('…');
    }
    let mut at = piece.start;
    for range in marked_ranges(words, &piece) {
        push_escaped(&mut html, text.get(at..range.start).unwrap_or_default());
        html.push_str("<em>");
        push_escaped(&mut html, text.get(range.clone()).unwrap_or_default());
        html.push_str("</em>");
        at = range.end;
    }
    push_escaped(&mut html, text.get(at..piece.end).unwrap_or_default());
    if piece.end < text.len() {
        html.push('…');
    }
    html
}

/// The ranges to mark within a piece. Adjacent words, as in Chinese and Japanese, are marked together.
fn marked_ranges(words: &[WordSpan], piece: &Range<usize>) -> Vec<Range<usize>> {
    let mut ranges: Vec<Range<usize>> = Vec::new();
    for word in words.iter().filter(|word| word.is_match) {
        let range = word.range.start.max(piece.start)..word.range.end.min(piece.end);
        if range.is_empty() {
            continue;
        }
        match ranges.last_mut().filter(|last| last.end == range.start) {
            Some(last) => last.end = range.end,
            None => ranges.push(range),
        }
    }
    ranges
}

/// Appends escaped text. Control characters and line separators become spaces. Direction controls are dropped, because
/// they would reach beyond the snippet.
fn push_escaped(html: &mut String, text: &str) {
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

    use super::super::fold::tokenize_text;
    use super::super::random::TestRandom;
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

    /// Matches words one by one.
    fn match_each(is_match: impl Fn(&str) -> bool) -> impl FnMut(&TextToken) -> usize {
        move |token| usize::from(is_match(&token.text))
    }

    /// Matches words in a row.
    fn match_row(words: &[&str]) -> impl FnMut(&TextToken) -> usize {
        let mut seen: Vec<String> = Vec::new();
        move |token| {
            seen.push(token.text.clone());
            let last = &seen[seen.len().saturating_sub(words.len())..];
            if last == words { words.len() } else { 0 }
        }
    }

    fn highlight_hits(text: &str, chars_max: usize) -> Option<String> {
        render_snippet(text, match_each(is_hit), chars_max)
    }

    /// Like [`render_snippet`], but over the words of the whole text.
    fn found_in_all(text: &str, chars_max: usize, is_match: impl Fn(&str) -> bool) -> Option<String> {
        let mut words = Vec::new();
        for token in tokenize_text(text) {
            add_span(&mut words, token.start..token.end);
            mark_matches(&mut words, usize::from(is_match(&token.text)));
        }
        let first = words.iter().position(|word| word.is_match)?;
        Some(render_html(text, &words, choose_range(text, &words, first, chars_max.max(1))))
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
            assert_eq!(highlight_hits(text, 100).as_deref(), Some(html), "{text}");
        }
        assert_eq!((highlight_hits("", 9), highlight_hits("nothing", 9), highlight_hits("…", 9)), (None, None, None));
    }

    #[test]
    fn of_a_row_every_word_is_marked() {
        for (text, words, chars_max, html) in [
            ("web, Web-01.x", &["web", "01"][..], 100, "web, <em>Web</em>-<em>01</em>.x"),
            ("in 東京都", &["東", "京"], 100, "in <em>東京</em>都"),
            ("1 5½ 3", &["2", "3"], 100, "1 <em>5½</em> <em>3</em>"),
            ("a a a b", &["a", "a", "b"], 100, "a <em>a</em> <em>a</em> <em>b</em>"),
            ("a b a b a", &["a", "b", "a"], 100, "<em>a</em> <em>b</em> <em>a</em> <em>b</em> <em>a</em>"),
            ("the mail, the vpn", &["the", "vpn"], 8, "…<em>the</em> <em>vpn</em>"),
            ("the mail, the vpn is down", &["the", "vpn"], 10, "…<em>the</em> <em>vpn</em> is…"),
            ("one two three", &["one", "two", "three"], 8, "<em>one</em> <em>two</em>…"),
        ] {
            assert_eq!(render_snippet(text, match_row(words), chars_max).as_deref(), Some(html), "{text}");
        }
        for text in ["", "vpn", "the mail vpn", "vpn the"] {
            assert_eq!(render_snippet(text, match_row(&["the", "vpn"]), 100), None, "{text}");
        }
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
            assert_eq!(highlight_hits(text, chars_max).as_deref(), Some(html), "{text}");
        }
    }

    #[test]
    fn a_text_is_read_no_further_than_it_is_shown() {
        for (text, chars_max, expected) in [
            (format!("hit {}", "miss ".repeat(10_000)), 20, 5),
            (format!("{}hit {}", "miss ".repeat(100), "miss ".repeat(10_000)), 20, 105),
            ("miss ".repeat(100), 20, 100),
            (format!("hit{}", "miss ".repeat(10_000)), 3, 1),
        ] {
            let count = Cell::new(0);
            let is_match = |token: &str| {
                count.set(count.get() + 1);
                is_hit(token)
            };
            assert_eq!(render_snippet(&text, match_each(is_match), chars_max), found_in_all(&text, chars_max, is_hit));
            assert_eq!(count.get(), expected);
        }
    }

    #[test]
    fn a_row_is_looked_for_no_further_than_it_is_shown() {
        for (text, chars_max, expected) in [
            (format!("the mail, the vpn {}", "miss ".repeat(10_000)), 20, 7),
            (format!("the vpn {}", "miss ".repeat(10_000)), 3, 2),
        ] {
            let (mut count, mut matching) = (0, match_row(&["the", "vpn"]));
            let counted = |token: &TextToken| {
                count += 1;
                matching(token)
            };
            assert!(render_snippet(&text, counted, chars_max).is_some());
            assert_eq!(count, expected);
        }
    }

    #[test]
    fn what_is_not_read_changes_nothing() {
        let mut random = TestRandom::new(4);
        for _ in 0..20_000 {
            let (text, chars_max) = (random.random_text(&PIECES, 40), random.draw_below(40));
            assert_eq!(
                highlight_hits(&text, chars_max),
                found_in_all(&text, chars_max, is_hit),
                "{text:?} {chars_max}"
            );
            let is_half = |token: &str| token.starts_with('1') || token.starts_with('2');
            let expected = found_in_all(&text, chars_max, is_half);
            assert_eq!(render_snippet(&text, match_each(is_half), chars_max), expected, "{text:?} {chars_max}");
        }
    }

    #[test]
    fn any_text_gives_html_that_is_safe_and_balanced() {
        let mut random = TestRandom::new(3);
        for _ in 0..10_000 {
            let (text, chars_max) = (random.random_text(&PIECES, 40), random.draw_below(60));
            match highlight_hits(&text, chars_max) {
                Some(html) => assert_safe(&html, chars_max),
                None => assert!(tokenize_text(&text).iter().all(|token| !token.text.starts_with("hit")), "{text:?}"),
            }
            if let Some(html) = render_snippet(&text, match_row(&["hit", "miss"]), chars_max) {
                assert_safe(&html, chars_max);
            }
        }
    }

    fn assert_safe(html: &str, chars_max: usize) {
        let parts: Vec<&str> = html.split("<em>").collect();
        assert!(parts.len() > 1 && !parts[0].contains("</em>"), "{html}");
        for part in &parts[1..] {
            let (marked, _) = part.split_once("</em>").unwrap();
            assert!(!marked.is_empty(), "{html}");
        }
        let shown = unescape_html(&html.replace("<em>", "").replace("</em>", ""));
        assert!(shown.chars().count() <= chars_max.max(1) + 2, "{chars_max}: {html}");
    }

    fn unescape_html(html: &str) -> String {
        assert!(!html.contains(|c: char| matches!(c, '<' | '>' | '"' | '\'' | '\u{202e}') || c.is_control()), "{html}");
        let entities = [("&lt;", "<"), ("&gt;", ">"), ("&quot;", "\""), ("&#39;", "'")];
        let html = entities.iter().fold(html.to_owned(), |html, (entity, c)| html.replace(entity, c));
        assert_eq!(html.matches('&').count(), html.matches("&amp;").count(), "{html}");
        html.replace("&amp;", "&")
    }
}
