//! What a domain carries of ours, in its `<metadata>`: owner, order, name, image and tags. And the ids that follow from them.

use std::collections::BTreeMap;

use kernel::base::sha256;

use super::xml::{HostElement, escape, read_element};
use crate::message::to_hex;
use crate::{MachineSpec, OPERATION_TAG};

/// Of the element in a domain's metadata. It names a format, not a place.
pub const NAMESPACE: &str = "urn:tenant-control:machine:1";

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MachineMetadata {
    pub owner: String,
    /// None of a domain that the operator has given to its owner.
    pub operation_id: Option<String>,
    pub name: Option<String>,
    pub image: Option<String>,
    pub tags: BTreeMap<String, String>,
}

impl MachineMetadata {
    pub fn of_order(owner: &str, spec: &MachineSpec) -> Self {
        MachineMetadata {
            owner: owner.to_owned(),
            operation_id: Some(spec.operation_id.clone()),
            name: Some(spec.name.clone()),
            image: Some(spec.image.clone()),
            tags: spec.tags.clone(),
        }
    }

    pub fn write(&self) -> String {
        let optional = [("operation", &self.operation_id), ("name", &self.name), ("image", &self.image)];
        let optional: Vec<String> = optional
            .iter()
            .filter_map(|(key, value)| value.as_ref().map(|value| format_attribute(key, value)))
            .collect();
        let tags: Vec<String> = self
            .tags
            .iter()
            .map(|(key, value)| {
                format!("<tc:tag{}{}/>", format_attribute("key", key), format_attribute("value", value))
            })
            .collect();
        format!(
            "<tc:machine xmlns:tc=\"{NAMESPACE}\"{}{}>{}</tc:machine>",
            format_attribute("owner", &self.owner),
            optional.concat(),
            tags.concat()
        )
    }

    /// `None` if it is not of this format, or has no owner.
    pub fn read(text: &str) -> Option<Self> {
        let root = read_element(text).filter(|root| root.name == "machine")?;
        let attribute = |name: &str| root.attribute(name).map(str::to_owned);
        let read_tag = |tag: &HostElement| {
            let value = tag.attributes.get("value").cloned().unwrap_or_default();
            Some((tag.attribute("key")?.to_owned(), value))
        };
        Some(MachineMetadata {
            owner: attribute("owner")?,
            operation_id: attribute("operation"),
            name: attribute("name"),
            image: attribute("image"),
            tags: root.list("tag").filter_map(read_tag).filter(|(key, _)| key != OPERATION_TAG).collect(),
        })
    }
}

fn format_attribute(key: &str, value: &str) -> String {
    format!(" {key}=\"{}\"", escape(value))
}

/// The UUID of the domain that an order makes: the same for the same order, so a second one is the same domain. Version 8,
/// as RFC 9562 has it for ids that follow from something else.
pub fn machine_uuid(owner: &str, operation_id: &str) -> String {
    let digest = sha256(format!("machine of {owner} by {operation_id}").as_bytes());
    let mut bytes = [0_u8; 16];
    bytes.copy_from_slice(&digest[..16]);
    bytes[6] = 0x80 | (bytes[6] & 0x0f);
    bytes[8] = 0x80 | (bytes[8] & 0x3f);
    let hex = to_hex(&bytes);
    [&hex[..8], &hex[8..12], &hex[12..16], &hex[16..20], &hex[20..]].join("-")
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::super::is_uuid;
    use super::*;
    use crate::test_support::spec;

    #[test]
    fn metadata_is_read_as_it_was_written() {
        let mut order = spec("default", "2cpu-2048mb", "debian-12.qcow2");
        order.tags.insert("odd <key> & \"more\"".to_owned(), "it's <b>é</b>".to_owned());
        order.tags.insert("empty".to_owned(), String::new());
        let metadata = MachineMetadata::of_order("ten_01", &order);
        let text = metadata.write();
        assert_eq!(MachineMetadata::read(&text), Some(metadata));
        assert!(!text.contains("canary"), "user data is not kept: {text}");
    }

    #[test]
    fn the_operator_needs_to_write_an_owner_alone() {
        let given = MachineMetadata::read("<machine owner='ten_01'/>").unwrap();
        assert_eq!(given, MachineMetadata { owner: "ten_01".to_owned(), ..MachineMetadata::default() });
        for text in ["<machine/>", "<machine owner=''/>", "<other owner='ten_01'/>", "no xml"] {
            assert_eq!(MachineMetadata::read(text), None, "{text}");
        }
    }

    #[test]
    fn an_order_always_has_the_same_uuid() {
        let uuid = machine_uuid("ten_01", "op_01");
        assert_eq!(uuid, machine_uuid("ten_01", "op_01"));
        assert!(is_uuid(&uuid) && uuid.as_bytes()[14] == b'8', "{uuid}");
        assert!(matches!(uuid.as_bytes()[19], b'8' | b'9' | b'a' | b'b'), "{uuid}");
        assert_ne!(uuid, machine_uuid("ten_02", "op_01"));
        assert_ne!(uuid, machine_uuid("ten_01", "op_02"));
    }
}
