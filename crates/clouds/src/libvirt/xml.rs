//! The little XML that is exchanged with libvirt: texts are escaped on the way out, and elements read with their attributes.

use std::collections::BTreeMap;

use quick_xml::Reader;
use quick_xml::escape::unescape;
use quick_xml::events::{BytesStart, Event};

use super::spec::is_xml_char;

/// Descriptions nest about a dozen levels.
const DEPTH_MAX: usize = 64;
/// The capabilities of a large host have some ten thousand.
const EVENTS_MAX: usize = 1_000_000;

#[derive(Debug, Default, PartialEq)]
pub struct HostElement {
    /// Without a prefix.
    pub name: String,
    pub attributes: BTreeMap<String, String>,
    pub text: String,
    pub children: Vec<HostElement>,
}

/// A text or the value of an attribute.
pub fn escape(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            '\'' => escaped.push_str("&apos;"),
            c if is_xml_char(c) => escaped.push(c),
            _ => escaped.push(' '),
        }
    }
    escaped
}

/// Reads a document with one root. `None` if it is malformed, cut off, or larger than any description.
pub fn read_element(text: &str) -> Option<HostElement> {
    let mut reader = Reader::from_str(text);
    let mut open: Vec<HostElement> = Vec::new();
    let mut root = None;
    for _ in 0..EVENTS_MAX {
        let closed = match reader.read_event().ok()? {
            Event::Start(start) if open.len() < DEPTH_MAX => {
                open.push(read_start(&start)?);
                continue;
            }
            Event::Empty(start) => read_start(&start)?,
            Event::End(_) => open.pop()?,
            Event::Text(text) => {
                append_text(&mut open, &text);
                continue;
            }
            Event::GeneralRef(reference) => {
                let name: &str = &reference;
                append_text(&mut open, &unescape(&format!("&{name};")).ok()?);
                continue;
            }
            Event::Eof if open.is_empty() => return root,
            Event::Eof | Event::DocType(_) | Event::Start(_) => return None,
            _ => continue,
        };
        match open.last_mut() {
            Some(parent) => parent.children.push(closed),
            None if root.is_none() => root = Some(closed),
            None => return None,
        }
    }
    None
}

fn append_text(open: &mut [HostElement], text: &str) {
    if let Some(element) = open.last_mut() {
        element.text.push_str(text);
    }
}

fn read_start(start: &BytesStart<'_>) -> Option<HostElement> {
    let mut element = HostElement { name: start.local_name().as_ref().to_owned(), ..HostElement::default() };
    for attribute in start.attributes() {
        let attribute = attribute.ok()?;
        let value = unescape(&attribute.value).ok()?.into_owned();
        element.attributes.insert(attribute.key.as_ref().to_owned(), value);
    }
    Some(element)
}

impl HostElement {
    /// The first element at a path of names.
    pub fn find(&self, path: &[&str]) -> Option<&Self> {
        path.iter().try_fold(self, |element, name| element.children.iter().find(|child| child.name == **name))
    }

    pub fn list<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a Self> {
        self.children.iter().filter(move |child| child.name == name)
    }

    /// An attribute that is not empty.
    pub fn attribute(&self, name: &str) -> Option<&str> {
        self.attributes.get(name).map(String::as_str).filter(|value| !value.is_empty())
    }
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;

    #[test]
    fn what_is_escaped_is_read_back() {
        let odd = "a<b> & \"c\" 'd' é";
        let text =
            format!("<?xml version='1.0'?>\n<p:r xmlns:p='urn:x' k=\"{0}\"><p:t>{0}</p:t><e/></p:r>", escape(odd));
        let root = read_element(&text).unwrap();
        assert_eq!((root.name.as_str(), root.attribute("k")), ("r", Some(odd)));
        assert_eq!(root.find(&["t"]).unwrap().text, odd);
        assert_eq!(root.list("e").count(), 1);
        assert_eq!(escape("a\u{0}\nb\u{fffe}"), "a  b ");
    }

    #[test]
    fn what_is_malformed_is_refused() {
        let deep = format!("{}{}", "<a>".repeat(1_000), "</a>".repeat(1_000));
        for text in ["", "<a>", "<a></b>", "<a/><b/>", "<a k=1/>", "<!DOCTYPE a><a/>", "<a>&x;</a>", deep.as_str()] {
            assert_eq!(read_element(text), None, "{text}");
        }
    }
}
