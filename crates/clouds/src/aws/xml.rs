//! AWS' XML as a tree of elements. Attributes, of which AWS only sends namespaces, are left out.
//!
//! A page of a thousand instances is some 200,000 elements. So the elements at one path are given to the caller as they end,
//! and only the rest stays in the tree.

use std::borrow::Cow;

use quick_xml::Reader;
use quick_xml::events::{BytesRef, Event};

/// AWS nests about a dozen levels.
const DEPTH_MAX: usize = 32;
/// Several times a full page of instances with many disks and interfaces.
const EVENTS_MAX: usize = 4_000_000;

#[derive(Debug, Default, PartialEq)]
pub struct XmlElement<'a> {
    pub name: String,
    pub text: Cow<'a, str>,
    pub children: Vec<XmlElement<'a>>,
}

/// The body is no XML, is cut off, or is larger or deeper than an answer of AWS.
#[derive(Debug, PartialEq)]
pub struct XmlError;

/// Reads a document with one root. Each element at `item_path` below the root goes to `take_item`.
pub fn read_document<'a>(
    body: &'a [u8],
    item_path: &[&str],
    mut take_item: impl FnMut(XmlElement<'a>),
) -> Result<XmlElement<'a>, XmlError> {
    let text = std::str::from_utf8(body).map_err(|_| XmlError)?;
    let mut reader = Reader::from_str(text);
    let mut open: Vec<XmlElement<'a>> = Vec::new();
    let mut root = None;
    for _ in 0..EVENTS_MAX {
        let closed = match reader.read_event().map_err(|_| XmlError)? {
            Event::Start(start) => {
                open.push(XmlElement { name: start.local_name().as_ref().to_owned(), ..XmlElement::default() });
                if open.len() > DEPTH_MAX {
                    return Err(XmlError);
                }
                None
            }
            Event::Empty(start) => {
                Some(XmlElement { name: start.local_name().as_ref().to_owned(), ..XmlElement::default() })
            }
            Event::End(_) => open.pop(),
            Event::Text(text) => append_text(&mut open, text.into_inner())?,
            Event::CData(text) => append_text(&mut open, text.into_inner())?,
            Event::GeneralRef(reference) => append_text(&mut open, resolve_reference(&reference)?)?,
            Event::Eof if open.is_empty() => return root.ok_or(XmlError),
            Event::Eof | Event::DocType(_) => return Err(XmlError),
            _ => None,
        };
        let Some(closed) = closed else { continue };
        if is_at_path(&open, &closed, item_path) {
            take_item(closed);
        } else if let Some(parent) = open.last_mut() {
            parent.children.push(closed);
        } else if root.replace(closed).is_some() {
            return Err(XmlError);
        }
    }
    Err(XmlError)
}

fn is_at_path(open: &[XmlElement<'_>], closed: &XmlElement<'_>, item_path: &[&str]) -> bool {
    // The root is open as well, and is not in the path.
    open.len() == item_path.len()
        && item_path.last().is_some_and(|name| closed.name == **name)
        && open.iter().skip(1).zip(item_path).all(|(element, name)| element.name == **name)
}

/// Text outside the root is none of AWS.
fn append_text<'a>(open: &mut [XmlElement<'a>], text: Cow<'a, str>) -> Result<Option<XmlElement<'a>>, XmlError> {
    match open.last_mut() {
        Some(element) if element.text.is_empty() => element.text = text,
        Some(element) => element.text.to_mut().push_str(&text),
        None if text.trim().is_empty() => {}
        None => return Err(XmlError),
    }
    Ok(None)
}

/// AWS has the five entities of XML, and characters by their number.
fn resolve_reference<'a>(reference: &BytesRef<'_>) -> Result<Cow<'a, str>, XmlError> {
    let name: &str = reference;
    let character = match name {
        "amp" => '&',
        "lt" => '<',
        "gt" => '>',
        "quot" => '"',
        "apos" => '\'',
        _ => {
            let number = name.strip_prefix('#').ok_or(XmlError)?;
            let code = match number.strip_prefix(['x', 'X']) {
                Some(hexadecimal) => u32::from_str_radix(hexadecimal, 16),
                None => number.parse(),
            };
            code.ok().and_then(char::from_u32).ok_or(XmlError)?
        }
    };
    Ok(Cow::Owned(character.to_string()))
}

impl XmlElement<'_> {
    /// The first element at a path of names.
    pub fn find(&self, path: &[&str]) -> Option<&Self> {
        path.iter().try_fold(self, |element, name| element.children.iter().find(|child| child.name == **name))
    }

    /// The text at a path; `None` if there is none or it is empty.
    pub fn find_text(&self, path: &[&str]) -> Option<&str> {
        self.find(path).map(|element| element.text.trim()).filter(|text| !text.is_empty())
    }

    pub fn find_number(&self, path: &[&str]) -> Option<i64> {
        self.find_text(path)?.parse().ok().filter(|number| *number >= 0)
    }

    /// The elements of a list at a path.
    pub fn list_items(&self, path: &[&str]) -> impl Iterator<Item = &Self> {
        self.find(path).into_iter().flat_map(|list| &list.children)
    }

    /// The first element of this name, wherever it is.
    pub fn find_anywhere(&self, name: &str) -> Option<&Self> {
        let mut open = vec![self];
        while let Some(element) = open.pop() {
            if element.name == name {
                return Some(element);
            }
            open.extend(element.children.iter().rev());
        }
        None
    }
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;

    fn read(body: &str) -> Result<XmlElement<'_>, XmlError> {
        read_document(body.as_bytes(), &[], |_| {})
    }

    #[test]
    fn elements_at_the_path_are_given_one_by_one() {
        let body = "<?xml version=\"1.0\"?>\n<R xmlns=\"x\"><set><item><a>1 &amp; &#x32;</a></item><item/></set>\
                    <item>no</item><next>t</next></R>\n";
        let mut items = Vec::new();
        let root = read_document(body.as_bytes(), &["set", "item"], |item| items.push(item)).unwrap();
        assert_eq!(items.len(), 2);
        assert_eq!(items[0].find_text(&["a"]), Some("1 & 2"));
        assert_eq!(root.find_text(&["next"]), Some("t"));
        assert_eq!(root.find_text(&["item"]), Some("no"));
        assert_eq!(root.find(&["set"]).unwrap().children.len(), 0);
    }

    #[test]
    fn what_is_cut_off_or_foreign_is_refused() {
        let whole = "<R><a>1</a><b/></R>";
        assert!(read(whole).is_ok());
        for end in 0..whole.len() {
            assert!(read(&whole[..end]).is_err(), "{}", &whole[..end]);
        }
        for body in [
            "<R/><R/>",
            "<R/>text",
            "{\"json\": true}",
            "<R>&unknown;</R>",
            "<R></S>",
            "<!DOCTYPE R [<!ENTITY a \"b\">]><R>&a;</R>",
            "<R>&#xD800;</R>",
        ] {
            assert!(read(body).is_err(), "{body}");
        }
        assert!(read_document(b"<R>\xff</R>", &[], |_| {}).is_err());
    }

    #[test]
    fn deep_documents_are_refused() {
        let deep = format!("{}{}", "<a>".repeat(100_000), "</a>".repeat(100_000));
        assert!(read(&deep).is_err());
    }

    #[test]
    fn numbers_are_whole_and_not_negative() {
        let root = read("<R><a>99999999999999999999</a><b>-1</b><c>7</c><d>1.5</d></R>").unwrap();
        assert_eq!(["a", "b", "c", "d", "e"].map(|name| root.find_number(&[name])), [None, None, Some(7), None, None]);
    }
}
