//! Parses the XML of the FusionInventory and OCS agents, event by event.
//!
//! The document has fixed levels: REQUEST, CONTENT, a section, a field. Each level is its own loop, nothing recurses, and
//! unknown elements are skipped. Document types and entities are refused: no agent sends them.

use std::borrow::Cow;

use quick_xml::Reader;
use quick_xml::events::{BytesDecl, BytesRef, BytesStart, Event};

use super::codec::INFLATED_BYTES_MAX;
use super::collector::{LowercaseName, ReportCollector, ReportSection};
use super::message::AgentMessage;
use super::refusal::ReportRefusal;
use super::text::{FIELD_BYTES_MAX, clean_label};

/// Agents nest five levels.
const DEPTH_MAX: usize = 32;

/// Thirty times a usual report, and twice the largest that the other limits allow. Limiting bytes does not limit time: a few
/// kilobytes inflate to millions of empty elements.
const EVENTS_MAX: usize = 1_000_000;

/// The level of a section's own element: REQUEST and CONTENT are above it.
pub const SECTION_DEPTH: usize = 3;

/// The declaration is at the very beginning, and shorter.
const DECLARATION_BYTES_MAX: usize = 200;

pub fn parse(bytes: &[u8]) -> Result<AgentMessage, ReportRefusal> {
    parse_with_limit(bytes, EVENTS_MAX)
}

/// The limit is a parameter, so that tests need not reach the real one.
pub fn parse_with_limit(bytes: &[u8], events_max: usize) -> Result<AgentMessage, ReportRefusal> {
    let text = decode_text(bytes)?;
    let reader = Reader::from_str(&text);
    let mut document = XmlReportReader { reader, events_left: events_max, collector: ReportCollector::default() };
    document.read_document()?;
    document.collector.into_message()
}

/// The document as UTF-8. Invalid bytes are replaced: agents send names as they find them.
fn decode_text(bytes: &[u8]) -> Result<Cow<'_, str>, ReportRefusal> {
    if is_latin_1(bytes) {
        // ISO-8859-1 is the first 256 characters of Unicode.
        return collect_bounded(bytes.iter().map(|&byte| char::from(byte))).map(Cow::Owned);
    }
    if let Ok(text) = std::str::from_utf8(bytes) {
        return Ok(Cow::Borrowed(text));
    }
    let chunks = bytes.utf8_chunks();
    collect_bounded(chunks.flat_map(|chunk| {
        chunk.valid().chars().chain((!chunk.invalid().is_empty()).then_some(char::REPLACEMENT_CHARACTER))
    }))
    .map(Cow::Owned)
}

/// Collects a text of at most the size limit of an inflated body.
fn collect_bounded(characters: impl Iterator<Item = char> + Clone) -> Result<String, ReportRefusal> {
    // Measured first: a growing string is in memory twice while it is copied.
    let bytes: usize = characters.clone().map(char::len_utf8).sum();
    if bytes > INFLATED_BYTES_MAX {
        return Err(ReportRefusal::too_large("The XML is too large once it is decoded."));
    }
    let mut text = String::with_capacity(bytes);
    text.extend(characters);
    Ok(text)
}

/// Whether the declaration names ISO-8859-1, the only other supported encoding, which old OCS agents use.
fn is_latin_1(bytes: &[u8]) -> bool {
    let start = bytes.get(..DECLARATION_BYTES_MAX).unwrap_or(bytes);
    let declaration = start.split(|&byte| byte == b'>').next().unwrap_or_default();
    let Ok(declaration) = std::str::from_utf8(declaration) else { return false };
    let declaration = declaration.to_ascii_lowercase();
    declaration.trim_start().starts_with("<?xml") && declaration.contains("iso-8859-1")
}

pub struct XmlReportReader<'a> {
    reader: Reader<&'a [u8]>,
    events_left: usize,
    pub collector: ReportCollector,
}

impl<'a> XmlReportReader<'a> {
    fn read_document(&mut self) -> Result<(), ReportRefusal> {
        let mut has_root = false;
        loop {
            match self.next_event()? {
                Event::Decl(declaration) => check_encoding(&declaration)?,
                Event::Start(_) if has_root => return Err(ReportRefusal::malformed("The XML has more than one root.")),
                Event::Start(root) => {
                    check_root(&root)?;
                    has_root = true;
                    self.read_request()?;
                }
                Event::Empty(root) => check_root(&root)?,
                Event::Text(text) if text.trim().is_empty() => {}
                Event::Text(_) | Event::CData(_) | Event::GeneralRef(_) => {
                    return Err(ReportRefusal::malformed("The XML has text outside its root."));
                }
                Event::Eof => return Ok(()),
                _ => {}
            }
        }
    }

    fn read_request(&mut self) -> Result<(), ReportRefusal> {
        while let Some((name, is_empty)) = self.next_child()? {
            match name.as_str() {
                "content" => {
                    self.collector.has_content = true;
                    if !is_empty {
                        self.read_content()?;
                    }
                }
                _ if is_empty => {}
                "query" => self.collector.query = clean_label(&self.read_value()?),
                "deviceid" => self.collector.device_id = clean_label(&self.read_value()?),
                "itemtype" => self.collector.report.item_type = clean_label(&self.read_value()?),
                _ => self.skip_element(2)?,
            }
        }
        Ok(())
    }

    fn read_content(&mut self) -> Result<(), ReportRefusal> {
        while let Some((name, is_empty)) = self.next_child()? {
            let name = name.as_str();
            if name == "device" {
                self.collector.begin_device()?;
                if !is_empty {
                    self.read_device()?;
                }
                self.collector.end_device();
            } else if let Some(section) = ReportSection::from_name(name) {
                self.collector.open_section(section);
                if !is_empty {
                    self.read_entry(section)?;
                }
            } else if name == "agent" {
                self.collector.has_progress = true;
                if !is_empty {
                    self.skip_element(SECTION_DEPTH)?;
                }
            } else if is_empty {
                // Nothing to skip.
            } else if name == "versionclient" {
                let value = self.read_value()?;
                self.collector.set_agent(&value);
            } else {
                self.skip_element(SECTION_DEPTH)?;
            }
        }
        Ok(())
    }

    /// One entry of a section: a list is a repeated section element.
    pub fn read_entry(&mut self, section: ReportSection) -> Result<(), ReportRefusal> {
        // An entry without fields is an empty list.
        let mut is_open = false;
        while let Some((name, is_empty)) = self.next_child()? {
            if !is_open {
                self.collector.open_entry(section)?;
                is_open = true;
            }
            if is_empty {
                continue;
            }
            let field = name.as_str();
            if let Some(nested) = section.nested_section(field) {
                self.read_nested(nested)?;
            } else {
                let value = self.read_value()?;
                self.collector.set_field(section, field, &value);
            }
        }
        if is_open { self.collector.close_entry(section) } else { Ok(()) }
    }

    fn read_nested(&mut self, section: ReportSection) -> Result<(), ReportRefusal> {
        while let Some((name, is_empty)) = self.next_child()? {
            if !is_empty {
                let value = self.read_value()?;
                self.collector.set_field(section, name.as_str(), &value);
            }
        }
        Ok(())
    }

    /// The next child element, and whether it is empty; `None` at the end of the current element.
    pub fn next_child(&mut self) -> Result<Option<(LowercaseName, bool)>, ReportRefusal> {
        loop {
            match self.next_event()? {
                Event::Start(start) => return Ok(Some((LowercaseName::new(start.name().as_ref()), false))),
                Event::Empty(start) => return Ok(Some((LowercaseName::new(start.name().as_ref()), true))),
                Event::End(_) => return Ok(None),
                Event::Eof => return Err(cut_off_refusal()),
                _ => {}
            }
        }
    }

    /// The text of the current element. Child elements are skipped.
    pub fn read_value(&mut self) -> Result<Cow<'a, str>, ReportRefusal> {
        let mut value = Cow::Borrowed("");
        loop {
            match self.next_event()? {
                Event::Text(text) => append_piece(&mut value, text.into_inner()),
                Event::CData(text) => append_piece(&mut value, text.into_inner()),
                Event::GeneralRef(reference) => {
                    if let Some(character) = resolve_reference(&reference)? {
                        append_piece(&mut value, Cow::Owned(character.to_string()));
                    }
                }
                Event::Start(_) => self.skip_element(SECTION_DEPTH + 2)?,
                Event::End(_) => return Ok(value),
                Event::Eof => return Err(cut_off_refusal()),
                _ => {}
            }
        }
    }

    /// Skips the current element, which is at this depth.
    pub fn skip_element(&mut self, depth: usize) -> Result<(), ReportRefusal> {
        let mut open = depth;
        loop {
            match self.next_event()? {
                Event::Start(_) => open += 1,
                Event::End(_) if open == depth => return Ok(()),
                Event::End(_) => open -= 1,
                Event::GeneralRef(reference) => drop(resolve_reference(&reference)?),
                Event::Eof => return Err(cut_off_refusal()),
                _ => {}
            }
            if open > DEPTH_MAX {
                return Err(ReportRefusal::malformed(format!("The XML is nested deeper than {DEPTH_MAX} levels.")));
            }
        }
    }

    fn next_event(&mut self) -> Result<Event<'a>, ReportRefusal> {
        let Some(events_left) = self.events_left.checked_sub(1) else {
            return Err(ReportRefusal::too_many("The XML has more tags and texts than a report needs."));
        };
        self.events_left = events_left;
        match self.reader.read_event() {
            Ok(Event::DocType(_)) => Err(entity_refusal()),
            Ok(event) => Ok(event),
            Err(_) => {
                let position = self.reader.error_position();
                Err(ReportRefusal::malformed(format!("The XML is not well formed near byte {position}.")))
            }
        }
    }
}

/// Appends a piece to a value. Nearly all values are one piece, which is not copied.
fn append_piece<'a>(value: &mut Cow<'a, str>, piece: Cow<'a, str>) {
    let room = FIELD_BYTES_MAX.saturating_sub(value.len());
    if value.is_empty() && piece.len() <= room {
        *value = piece;
        return;
    }
    let end = piece.floor_char_boundary(room);
    value.to_mut().push_str(piece.get(..end).unwrap_or_default());
}

/// The character of a reference; `None` for a number that is no XML character.
fn resolve_reference(reference: &BytesRef<'_>) -> Result<Option<char>, ReportRefusal> {
    let name: &str = reference;
    let Some(number) = name.strip_prefix('#') else {
        return match name {
            "amp" => Ok(Some('&')),
            "lt" => Ok(Some('<')),
            "gt" => Ok(Some('>')),
            "quot" => Ok(Some('"')),
            "apos" => Ok(Some('\'')),
            _ => Err(entity_refusal()),
        };
    };
    let code = match number.strip_prefix(['x', 'X']) {
        Some(hexadecimal) => u32::from_str_radix(hexadecimal, 16),
        None => number.parse(),
    };
    Ok(code.ok().and_then(char::from_u32).filter(|&character| is_xml_character(character)))
}

/// The characters that XML 1.0 allows.
fn is_xml_character(character: char) -> bool {
    matches!(character, '\t' | '\n' | '\r' | '\u{20}'..='\u{d7ff}' | '\u{e000}'..='\u{fffd}' | '\u{10000}'..)
}

fn check_encoding(declaration: &BytesDecl<'_>) -> Result<(), ReportRefusal> {
    match declaration.encoding() {
        None => Ok(()),
        Some(Ok(encoding))
            if ["utf-8", "utf8", "us-ascii", "ascii", "iso-8859-1"]
                .iter()
                .any(|known| encoding.eq_ignore_ascii_case(known)) =>
        {
            Ok(())
        }
        Some(_) => Err(ReportRefusal::unsupported("The XML is in an encoding other than UTF-8 and ISO-8859-1.")),
    }
}

fn check_root(root: &BytesStart<'_>) -> Result<(), ReportRefusal> {
    if root.name().as_ref().eq_ignore_ascii_case("request") {
        Ok(())
    } else {
        Err(ReportRefusal::unsupported("The XML is not a REQUEST of an inventory agent."))
    }
}

fn entity_refusal() -> ReportRefusal {
    ReportRefusal::unsupported("The XML may have no document types or entities.")
}

fn cut_off_refusal() -> ReportRefusal {
    ReportRefusal::malformed("The XML ends before its root element does.")
}
