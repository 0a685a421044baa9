//! The little of Markdown that the changelog is written in: headings, lists, paragraphs, `code`, **bold** and links. What is
//! nothing of that is text, and nothing is HTML: the template escapes every word.

use askama::Template;
use kernel::base::{Error, Result};

#[derive(Debug, PartialEq, Eq)]
pub enum Block {
    /// Its level, as the number of its marks.
    Heading(usize, String),
    Paragraph(Vec<Span>),
    List(Vec<Vec<Span>>),
}

#[derive(Debug, PartialEq, Eq)]
pub enum Span {
    Text(String),
    Code(String),
    Strong(String),
    /// What is shown, and where it leads.
    Link(String, String),
}

/// Blocks below a heading of a release.
#[derive(Template)]
#[template(path = "markdown.html")]
struct Body {
    blocks: Vec<Block>,
}

/// As HTML, which is safe to put into a page.
pub fn render(blocks: Vec<Block>) -> Result<String> {
    Body { blocks }.render().map_err(Error::internal)
}

pub fn parse(text: &str) -> Vec<Block> {
    let mut blocks = Vec::new();
    for line in logical_lines(text) {
        if let Some((marks, title)) = heading(&line) {
            blocks.push(Block::Heading(marks, title.to_owned()));
        } else if let Some(item) = line.strip_prefix(ITEM) {
            match blocks.last_mut() {
                Some(Block::List(items)) => items.push(spans(item)),
                _ => blocks.push(Block::List(vec![spans(item)])),
            }
        } else if !line.is_empty() {
            blocks.push(Block::Paragraph(spans(&line)));
        }
    }
    blocks
}

const ITEM: &str = "- ";

/// A line for each heading, item and paragraph, wherever it was broken.
fn logical_lines(text: &str) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for line in text.lines().map(str::trim_end) {
        let begins = line.is_empty() || line.starts_with(ITEM) || heading(line).is_some();
        match lines.last_mut().filter(|last| !begins && !last.is_empty() && heading(last).is_none()) {
            Some(last) => {
                last.push(' ');
                last.push_str(line.trim_start());
            }
            None => lines.push(line.to_owned()),
        }
    }
    lines
}

fn heading(line: &str) -> Option<(usize, &str)> {
    let (marks, title) = line.split_once(' ')?;
    (!marks.is_empty() && marks.bytes().all(|byte| byte == b'#')).then(|| (marks.len(), title.trim()))
}

fn spans(text: &str) -> Vec<Span> {
    let (mut spans, mut plain, mut rest) = (Vec::new(), String::new(), text);
    while let Some(at) = rest.find(['`', '*', '[']) {
        let (before, marked) = rest.split_at(at);
        plain.push_str(before);
        if let Some((span, after)) = marked_span(marked) {
            if !plain.is_empty() {
                spans.push(Span::Text(std::mem::take(&mut plain)));
            }
            spans.push(span);
            rest = after;
        } else {
            // A mark without its other half is a character like any other.
            let (mark, after) = marked.split_at(1);
            plain.push_str(mark);
            rest = after;
        }
    }
    plain.push_str(rest);
    if !plain.is_empty() {
        spans.push(Span::Text(plain));
    }
    spans
}

/// What begins with this mark, and what comes after it.
fn marked_span(text: &str) -> Option<(Span, &str)> {
    if let Some(rest) = text.strip_prefix('`') {
        let (code, after) = rest.split_once('`')?;
        return Some((Span::Code(code.to_owned()), after));
    }
    if let Some(rest) = text.strip_prefix("**") {
        let (strong, after) = rest.split_once("**")?;
        return Some((Span::Strong(strong.to_owned()), after));
    }
    let (label, rest) = text.strip_prefix('[')?.split_once("](")?;
    let (url, after) = rest.split_once(')')?;
    let is_link = !label.contains(['[', ']']) && (url.starts_with("https://") || url.starts_with('/'));
    is_link.then(|| (Span::Link(label.to_owned(), url.to_owned()), after))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(text: &str) -> Span {
        Span::Text(text.to_owned())
    }

    #[test]
    fn lines_that_were_broken_are_one() {
        let parsed = parse("# Title\n\nOne\ntwo.\nthree\n\n## Next\nFour\n- a\n  b\n\n- c\n#5 is no heading\n");
        assert_eq!(
            parsed,
            [
                Block::Heading(1, "Title".to_owned()),
                Block::Paragraph(vec![text("One two. three")]),
                Block::Heading(2, "Next".to_owned()),
                Block::Paragraph(vec![text("Four")]),
                Block::List(vec![vec![text("a b")], vec![text("c #5 is no heading")]]),
            ]
        );
    }

    #[test]
    fn code_bold_and_links_are_marked_and_all_else_is_text() {
        let link = Span::Link("there".to_owned(), "https://a.test/".to_owned());
        assert_eq!(spans("see [there](https://a.test/)."), [text("see "), link, text(".")]);
        assert_eq!(
            spans("`a[b](c)` and **d**"),
            [Span::Code("a[b](c)".to_owned()), text(" and "), Span::Strong("d".to_owned())]
        );
        for plain in ["a * b", "tags[] and `", "[x](javascript:alert(1))", "[a [b](/c", "**", "[x](docs/a.md)"] {
            assert_eq!(spans(plain), [text(plain)], "{plain}");
        }
    }

    #[test]
    fn nothing_that_is_written_becomes_html() {
        let html = render(parse("### <h>\n\n<b> `<c>` **<d>** [<e>](/\"onclick=)\n\n- <f>\n")).unwrap_or_default();
        for dangerous in ["<b>", "<c>", "<d>", "<e>", "<f>", "<h>", "\"onclick"] {
            assert!(!html.contains(dangerous), "{dangerous} in {html}");
        }
        assert_eq!(html.matches("<li>").count(), 1, "{html}");
    }
}
