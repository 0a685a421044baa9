//! Renders Markdown as HTML: the changelog, the guides, and the descriptions of the OpenAPI document. HTML in it is shown as
//! text, links lead only to permitted targets, and wide content scrolls inside its own box.

use std::collections::BTreeMap;

use pulldown_cmark::{Event, HeadingLevel, Options, Parser, Tag, TagEnd, html};

/// A rendered text with anchors at its headings.
pub struct MarkdownText {
    pub html: String,
    pub sections: Vec<MarkdownSection>,
}

/// A heading of the second level.
pub struct MarkdownSection {
    pub anchor: String,
    pub title: String,
}

/// Renders HTML that is safe to put into a page. It has no anchors, which could occur twice on a page with several texts.
pub fn to_html(text: &str) -> String {
    events_to_html(&parse_events(text, &permit_link))
}

/// The same with anchors. `lead` maps the targets of links; a link without a target becomes text.
pub fn to_html_with_anchors(text: &str, lead: &dyn Fn(&str) -> Option<String>) -> MarkdownText {
    let mut events = parse_events(text, lead);
    let sections = add_anchors(&mut events);
    MarkdownText { html: events_to_html(&events), sections }
}

/// The target of a link, if it is permitted: another site, a page of this service, or an anchor on the same page.
pub fn permit_link(url: &str) -> Option<String> {
    let is_elsewhere = ["https://", "http://", "mailto:", "#"].iter().any(|start| url.starts_with(start));
    // Two slashes begin a host name, and browsers accept backslashes too.
    let is_ours = url.strip_prefix('/').is_some_and(|rest| !rest.starts_with(['/', '\\']));
    (is_elsewhere || is_ours).then(|| url.to_owned())
}

/// The anchor of a heading.
pub fn heading_anchor(title: &str) -> String {
    let kept = |letter: &char| letter.is_alphanumeric() || [' ', '-', '_'].contains(letter);
    title.to_lowercase().chars().filter(kept).map(|letter| if letter == ' ' { '-' } else { letter }).collect()
}

fn events_to_html(events: &[Event<'_>]) -> String {
    let mut text = String::new();
    html::push_html(&mut text, events.iter().cloned());
    text
}

fn parse_events<'a>(text: &'a str, lead: &dyn Fn(&str) -> Option<String>) -> Vec<Event<'a>> {
    let mut is_dropped = false;
    let parser = Parser::new_ext(text, Options::ENABLE_TABLES);
    with_tables(&parser.filter_map(|event| sanitize_event(event, lead, &mut is_dropped)).collect::<Vec<_>>())
}

const CODE_BEGINS: &str = "<pre role=\"group\" aria-label=\"Code\" tabindex=\"0\"><code>";

/// Replaces or drops unsafe events. `is_dropped` says that the start of the current link was dropped.
fn sanitize_event<'a>(
    event: Event<'a>,
    lead: &dyn Fn(&str) -> Option<String>,
    is_dropped: &mut bool,
) -> Option<Event<'a>> {
    Some(match event {
        Event::Html(text) | Event::InlineHtml(text) => Event::Text(text),
        Event::Start(Tag::Image { .. }) | Event::End(TagEnd::Image) => return None,
        Event::Start(Tag::Link { link_type, dest_url, title, id }) => {
            let Some(url) = lead(&dest_url) else {
                *is_dropped = true;
                return None;
            };
            Event::Start(Tag::Link { link_type, dest_url: url.into(), title, id })
        }
        Event::End(TagEnd::Link) if std::mem::take(is_dropped) => return None,
        Event::Start(Tag::CodeBlock(_)) => Event::Html(CODE_BEGINS.into()),
        Event::End(TagEnd::CodeBlock) => Event::Html("</code></pre>\n".into()),
        event => event,
    })
}

const TABLE_BEGINS: &str = "<div class=\"scroll\" role=\"group\" aria-label=\"Table\" tabindex=\"0\">\n<table>\n";

/// Writes tables with the headers that screen readers need. A table with an empty first line has row headers.
fn with_tables<'a>(events: &[Event<'a>]) -> Vec<Event<'a>> {
    let mut all = Vec::with_capacity(events.len());
    let (mut is_head, mut has_head, mut is_first, mut cell) = (false, false, false, ("", ""));
    for (at, event) in events.iter().enumerate() {
        let tag = match event {
            Event::Start(Tag::Table(_)) => TABLE_BEGINS,
            Event::Start(Tag::TableHead) => {
                is_head = true;
                let mut head = events[at..].iter().take_while(|event| **event != Event::End(TagEnd::TableHead));
                has_head = head.any(|event| matches!(event, Event::Text(_) | Event::Code(_)));
                if has_head { "<thead><tr>" } else { "<tbody>\n" }
            }
            Event::End(TagEnd::TableHead) => {
                is_head = false;
                if has_head { "</tr></thead>\n<tbody>\n" } else { "" }
            }
            Event::Start(Tag::TableRow) => {
                is_first = true;
                "<tr>"
            }
            Event::Start(Tag::TableCell) => {
                let is_empty = matches!(events.get(at + 1), Some(Event::End(TagEnd::TableCell)));
                cell = match (is_head, has_head) {
                    (true, false) => ("", ""),
                    (true, true) if !is_empty => ("<th scope=\"col\">", "</th>"),
                    (false, false) if is_first => ("<th scope=\"row\">", "</th>"),
                    _ => ("<td>", "</td>"),
                };
                is_first = false;
                cell.0
            }
            Event::End(TagEnd::TableCell) => cell.1,
            Event::End(TagEnd::TableRow) => "</tr>\n",
            Event::End(TagEnd::Table) => "</tbody>\n</table>\n</div>\n",
            other => {
                all.push(other.clone());
                continue;
            }
        };
        all.push(Event::Html(tag.into()));
    }
    all
}

fn add_anchors(events: &mut [Event<'_>]) -> Vec<MarkdownSection> {
    let starts = events.iter().enumerate().filter(|(_, event)| matches!(event, Event::Start(Tag::Heading { .. })));
    let titles: Vec<String> = starts.map(|(at, _)| heading_title(&events[at..])).collect();
    let headings = events.iter_mut().filter_map(|event| match event {
        Event::Start(Tag::Heading { level, id, .. }) => Some((*level, id)),
        _ => None,
    });
    let (mut sections, mut taken) = (Vec::new(), BTreeMap::<String, usize>::new());
    for (title, (level, id)) in titles.into_iter().zip(headings) {
        let mut anchor = heading_anchor(&title);
        let before = taken.entry(anchor.clone()).or_default();
        if *before > 0 {
            anchor = format!("{anchor}-{before}");
        }
        *before += 1;
        *id = Some(anchor.clone().into());
        if level == HeadingLevel::H2 {
            sections.push(MarkdownSection { anchor, title });
        }
    }
    sections
}

/// The text of the heading that begins here.
fn heading_title(events: &[Event<'_>]) -> String {
    let within = events.iter().take_while(|event| !matches!(event, Event::End(TagEnd::Heading(_))));
    let words = within.filter_map(|event| match event {
        Event::Text(words) | Event::Code(words) => Some(&**words),
        _ => None,
    });
    words.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_guides_are_written_in_is_rendered() {
        let html = to_html("One\n*two*.\n\n- a\n  - b **c**\n\n1. `d`\n\n```sh\ne <f>\n```\n\n### G\n");
        for part in
            ["<em>two</em>.</p>", "<li>b <strong>c</strong></li>", "<ol>\n<li><code>d</code></li>", "<h3>G</h3>"]
        {
            assert!(html.contains(part), "{part} in {html}");
        }
        assert!(html.contains(&format!("{CODE_BEGINS}e &lt;f&gt;\n</code></pre>")), "{html}");
    }

    #[test]
    fn a_table_has_headers_above_or_at_the_side() {
        let above = to_html("| a | |\n|---|---|\n| b | c |\n");
        assert!(above.contains("<thead><tr><th scope=\"col\">a</th><td></td></tr></thead>"), "{above}");
        assert!(above.contains("<tbody>\n<tr><td>b</td><td>c</td></tr>\n</tbody>"), "{above}");
        let aside = to_html("| | |\n|---|---|\n| `b` | c |\n");
        assert!(!aside.contains("<thead>"), "{aside}");
        assert!(aside.contains("<tbody>\n<tr><th scope=\"row\"><code>b</code></th><td>c</td></tr>"), "{aside}");
    }

    #[test]
    fn headings_have_anchors_and_no_two_the_same() {
        let text = to_html_with_anchors("## Why did it `fail`?\n\n## Again\n\n## Again\n\n### Within\n", &permit_link);
        let anchors: Vec<&str> = text.sections.iter().map(|section| section.anchor.as_str()).collect();
        assert_eq!(anchors, ["why-did-it-fail", "again", "again-1"]);
        assert!(text.html.contains("<h2 id=\"why-did-it-fail\">") && text.html.contains("<h3 id=\"within\">"));
    }

    #[test]
    fn links_lead_only_where_they_may() {
        for url in ["https://a.test/", "mailto:a@b.test", "/c/", "#d"] {
            let html = to_html(&format!("see [there]({url})."));
            assert!(html.contains(&format!("see <a href=\"{url}\">there</a>.")), "{html}");
        }
        for url in ["javascript:alert(1)", "data:text/html,x", "//a.test", "/\\a.test", "docs/a.md"] {
            let html = to_html(&format!("see [there]({url}) and [here](/c/)."));
            assert_eq!(html, "<p>see there and <a href=\"/c/\">here</a>.</p>\n", "{url}");
        }
    }

    #[test]
    fn nothing_that_is_written_becomes_html() {
        let html = to_html(
            "### <h>\n\n<b> `<c>` **<d>** [<e>](/\"onclick=) ![<i>](/f)\n\n- <g>\n\n| <j> |\n|---|\n\n<script>\n",
        );
        for dangerous in ["<b>", "<c>", "<d>", "<e>", "<g>", "<h>", "<i>", "<j>", "<img", "<script", "\"onclick"] {
            assert!(!html.contains(dangerous), "{dangerous} in {html}");
        }
        assert_eq!(html.matches("<li>").count(), 1, "{html}");
    }
}
