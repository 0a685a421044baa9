//! Parses the JSON of the GLPI agent as a stream.
//!
//! Strict in structure: a section is an object or a list of objects. Lenient in scalars: agents send numbers as texts and
//! texts as numbers. Unknown fields go to `IgnoredAny`, which keeps nothing.

use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, Error as _, IgnoredAny, MapAccess, SeqAccess, Visitor};

use super::collector::{LowercaseName, ReportCollector, ReportSection};
use super::message::AgentMessage;
use super::refusal::ReportRefusal;
use super::text::{FIELD_BYTES_MAX, clean_label, parse_flag};

pub fn parse(bytes: &[u8]) -> Result<AgentMessage, ReportRefusal> {
    let mut state = JsonReadState::default();
    let mut deserializer = serde_json::Deserializer::from_slice(bytes);
    let outcome = MessageSeed(&mut state).deserialize(&mut deserializer).and_then(|()| deserializer.end());
    if let Some(refusal) = state.refusal {
        return Err(refusal);
    }
    if let Err(error) = outcome {
        let (line, column) = (error.line(), error.column());
        return Err(ReportRefusal::malformed(match (error.classify(), state.section) {
            (serde_json::error::Category::Data, Some(section)) => {
                format!("The section {} is neither an object nor a list of objects.", section.as_str())
            }
            _ => format!("The JSON is not well formed at line {line}, column {column}."),
        }));
    }
    let mut collector = state.collector;
    if collector.query.is_none() && collector.has_content {
        // The default of the format.
        collector.query = Some("inventory".to_owned());
    }
    collector.into_message()
}

#[derive(Default)]
struct JsonReadState {
    collector: ReportCollector,
    /// The name of the current section, for error details.
    section: Option<LowercaseName>,
    /// The errors of the JSON parser cannot carry a refusal.
    refusal: Option<ReportRefusal>,
}

impl JsonReadState {
    fn keep_refusal<E: serde::de::Error>(&mut self, outcome: Result<(), ReportRefusal>) -> Result<(), E> {
        outcome.map_err(|refusal| {
            self.refusal = Some(refusal);
            E::custom("refused")
        })
    }
}

struct MessageSeed<'s>(&'s mut JsonReadState);

impl<'de> DeserializeSeed<'de> for MessageSeed<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for MessageSeed<'_> {
    type Value = ();

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("a message")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        let state = self.0;
        while let Some(name) = map.next_key_seed(NameSeed)? {
            let collector = &mut state.collector;
            match name.as_str() {
                "action" => map.next_value_seed(ScalarSeed(&mut |value| collector.query = clean_label(value)))?,
                // The name in XML, which some converted reports keep.
                "query" => map.next_value_seed(ScalarSeed(&mut |value| {
                    collector.query = collector.query.take().or_else(|| clean_label(value));
                }))?,
                "deviceid" => map.next_value_seed(ScalarSeed(&mut |value| collector.device_id = clean_label(value)))?,
                "itemtype" => {
                    map.next_value_seed(ScalarSeed(&mut |value| collector.report.item_type = clean_label(value)))?;
                }
                "tag" => map.next_value_seed(ScalarSeed(&mut |value| collector.report.tag = clean_label(value)))?,
                "partial" => map.next_value_seed(ScalarSeed(&mut |value| {
                    collector.report.partial = parse_flag(value) == Some(true);
                }))?,
                "content" => map.next_value_seed(ContentSeed(state))?,
                _ => drop(map.next_value::<IgnoredAny>()?),
            }
        }
        Ok(())
    }
}

struct ContentSeed<'s>(&'s mut JsonReadState);

impl<'de> DeserializeSeed<'de> for ContentSeed<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for ContentSeed<'_> {
    type Value = ();

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("an object of sections")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        let state = self.0;
        state.collector.has_content = true;
        // Whatever a message of a scan has beside devices, it is about the scan.
        state.collector.has_progress = true;
        while let Some(name) = map.next_key_seed(NameSeed)? {
            if let Some(section) = ReportSection::from_name(name.as_str()) {
                state.section = Some(name);
                map.next_value_seed(SectionSeed { state, section, is_list: false })?;
                state.section = None;
            } else if name.as_str() == "versionclient" {
                map.next_value_seed(ScalarSeed(&mut |value| state.collector.set_agent(value)))?;
            } else {
                map.next_value::<IgnoredAny>()?;
            }
        }
        Ok(())
    }

    /// Other tasks have other content; an inventory without content is refused at the end.
    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<(), A::Error> {
        while list.next_element::<IgnoredAny>()?.is_some() {}
        Ok(())
    }

    fn visit_str<E>(self, _: &str) -> Result<(), E> {
        Ok(())
    }

    fn visit_unit<E>(self) -> Result<(), E> {
        Ok(())
    }
}

/// A section: one entry as an object, or a list of them.
struct SectionSeed<'s> {
    state: &'s mut JsonReadState,
    section: ReportSection,
    is_list: bool,
}

impl<'de> DeserializeSeed<'de> for SectionSeed<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for SectionSeed<'_> {
    type Value = ();

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("an object or a list of objects")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<(), A::Error> {
        let Self { state, section, is_list } = self;
        if is_list {
            return Err(A::Error::custom("a list within a list"));
        }
        state.collector.open_section(section);
        while list.next_element_seed(SectionSeed { state, section, is_list: true })?.is_some() {}
        Ok(())
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        let Self { state, section, .. } = self;
        let opened = state.collector.open_entry(section);
        state.keep_refusal(opened)?;
        while let Some(name) = map.next_key_seed(NameSeed)? {
            if let Some(nested) = section.nested_section(name.as_str()) {
                let is_list = !nested.is_nested_list();
                map.next_value_seed(SectionSeed { state, section: nested, is_list })?;
            } else {
                let collector = &mut state.collector;
                map.next_value_seed(ScalarSeed(&mut |value| collector.set_field(section, name.as_str(), value)))?;
            }
        }
        let closed = state.collector.close_entry(section);
        state.keep_refusal(closed)
    }

    /// A null section counts as absent.
    fn visit_unit<E>(self) -> Result<(), E> {
        Ok(())
    }
}

/// A scalar as text, or each scalar of a list. Objects are skipped.
struct ScalarSeed<'f>(&'f mut dyn FnMut(&str));

impl<'de> DeserializeSeed<'de> for ScalarSeed<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for ScalarSeed<'_> {
    type Value = ();

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("a plain value")
    }

    fn visit_str<E>(self, value: &str) -> Result<(), E> {
        let end = value.floor_char_boundary(FIELD_BYTES_MAX);
        (self.0)(value.get(..end).unwrap_or_default());
        Ok(())
    }

    fn visit_bool<E>(self, value: bool) -> Result<(), E> {
        (self.0)(if value { "1" } else { "0" });
        Ok(())
    }

    fn visit_i64<E>(self, value: i64) -> Result<(), E> {
        (self.0)(&value.to_string());
        Ok(())
    }

    fn visit_u64<E>(self, value: u64) -> Result<(), E> {
        (self.0)(&value.to_string());
        Ok(())
    }

    fn visit_f64<E>(self, value: f64) -> Result<(), E> {
        (self.0)(&value.to_string());
        Ok(())
    }

    fn visit_unit<E>(self) -> Result<(), E> {
        Ok(())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<(), A::Error> {
        let take = self.0;
        while list.next_element_seed(ScalarSeed(&mut *take))?.is_some() {}
        Ok(())
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        while map.next_entry::<IgnoredAny, IgnoredAny>()?.is_some() {}
        Ok(())
    }
}

/// A key in lower case.
struct NameSeed;

impl<'de> DeserializeSeed<'de> for NameSeed {
    type Value = LowercaseName;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<LowercaseName, D::Error> {
        deserializer.deserialize_identifier(self)
    }
}

impl Visitor<'_> for NameSeed {
    type Value = LowercaseName;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("a key")
    }

    fn visit_str<E>(self, name: &str) -> Result<LowercaseName, E> {
        Ok(LowercaseName::new(name))
    }
}
