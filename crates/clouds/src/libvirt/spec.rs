//! What can be ordered: a few sizes, and machines without user data and keys, which a bare host cannot hand over.

use super::REGION;
use crate::spec::{check_common, is_word};
use crate::{MachineSpec, SpecFieldError};

/// A size by its processors and memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HostSize {
    pub vcpus: i64,
    pub memory_mib: i64,
}

/// The sizes of the catalog.
pub const SIZES: &[HostSize] = &[
    HostSize { vcpus: 1, memory_mib: 1_024 },
    HostSize { vcpus: 1, memory_mib: 2_048 },
    HostSize { vcpus: 2, memory_mib: 2_048 },
    HostSize { vcpus: 2, memory_mib: 4_096 },
    HostSize { vcpus: 4, memory_mib: 8_192 },
    HostSize { vcpus: 8, memory_mib: 16_384 },
];

/// The image of a machine without a disk, which starts from the network.
pub const NO_IMAGE: &str = "none";

/// The title of a domain may have more, and the name of a domain becomes the name of files.
const NAME_CHARS_MAX: usize = 63;
const IMAGE_CHARS_MAX: usize = 200;

impl HostSize {
    pub fn id(self) -> String {
        format!("{}cpu-{}mb", self.vcpus, self.memory_mib)
    }

    pub fn find(id: &str) -> Option<HostSize> {
        SIZES.iter().copied().find(|size| size.id() == id)
    }
}

pub fn check_spec(spec: &MachineSpec) -> Vec<SpecFieldError> {
    let mut errors = check_common(spec, usize::MAX);
    if spec.region != REGION {
        errors.push(SpecFieldError::new("region", format!("must be {REGION} at libvirt")));
    }
    if !is_word(&spec.name, NAME_CHARS_MAX, &['-', '_', '.']) {
        let detail = "must be up to 63 letters, digits, -, _ and . at libvirt, with a letter or digit at both ends";
        errors.push(SpecFieldError::new("name", detail));
    }
    if HostSize::find(&spec.size).is_none() {
        let ids: Vec<String> = SIZES.iter().map(|size| size.id()).collect();
        errors.push(SpecFieldError::new("size", format!("must be one of {}", ids.join(", "))));
    }
    if !is_word(&spec.image, IMAGE_CHARS_MAX, &['-', '_', '.']) {
        let detail = format!("must be {NO_IMAGE}, or the name of a volume that the catalog lists");
        errors.push(SpecFieldError::new("image", detail));
    }
    if !spec.tags.iter().all(|(key, value)| key.chars().chain(value.chars()).all(is_xml_char)) {
        errors.push(SpecFieldError::new("tags", "must have no characters that XML cannot have, at libvirt"));
    }
    if spec.user_data.is_some() {
        errors.push(SpecFieldError::new("user_data", "cannot be given to a machine at libvirt"));
    }
    if !spec.ssh_keys.is_empty() {
        errors.push(SpecFieldError::new("ssh_keys", "cannot be given to a machine at libvirt"));
    }
    errors
}

/// Whether XML can have the character. It can have line breaks, too, but not keep them in attributes.
pub fn is_xml_char(c: char) -> bool {
    !c.is_control() && !matches!(c, '\u{fffe}' | '\u{ffff}')
}

/// Whether the text is a UUID as libvirt writes them, which is the id of a machine.
pub fn is_uuid(text: &str) -> bool {
    let is_dash = |at: usize| matches!(at, 8 | 13 | 18 | 23);
    let is_digit = |byte: u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte);
    text.len() == 36
        && text.bytes().enumerate().all(|(at, byte)| if is_dash(at) { byte == b'-' } else { is_digit(byte) })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_support::spec;

    fn host_spec() -> MachineSpec {
        MachineSpec { user_data: None, ssh_keys: Vec::new(), ..spec(REGION, "2cpu-2048mb", NO_IMAGE) }
    }

    #[test]
    fn an_order_that_a_host_can_carry_out_passes() {
        assert_eq!(check_spec(&host_spec()), []);
        assert_eq!(check_spec(&MachineSpec { image: "debian-12.qcow2".to_owned(), ..host_spec() }), []);
    }

    #[test]
    fn tags_are_what_xml_can_have() {
        let with_tag = |key: &str, value: &str| {
            let tags = [(key.to_owned(), value.to_owned())].into();
            check_spec(&MachineSpec { tags, ..host_spec() }).iter().map(|error| error.field).collect::<Vec<_>>()
        };
        assert_eq!(with_tag("<a> & \"b\"", "]]></metadata>'é"), Vec::<&str>::new());
        for odd in ["a\u{fffe}", "\u{ffff}b", "a\nb", "\u{0}"] {
            assert_eq!((with_tag("a", odd), with_tag(odd, "a")), (vec!["tags"], vec!["tags"]), "{odd:?}");
        }
    }

    #[test]
    fn the_id_of_a_machine_is_a_uuid_as_libvirt_writes_it() {
        assert!(is_uuid("6695eb01-f6a4-8304-89aa-97f2502e193f"));
        for text in [
            "",
            "6695eb01-f6a4-8304-89aa-97f2502e193",
            "6695EB01-f6a4-8304-89aa-97f2502e193f",
            "6695eb01f6a4-8304-89aa-97f2502e193f-",
            "------------------------------------",
        ] {
            assert!(!is_uuid(text), "{text}");
        }
    }

    #[test]
    fn what_a_host_cannot_do_is_refused_by_field() {
        let refused = check_spec(&MachineSpec {
            name: "a/b".to_owned(),
            image: "../etc/shadow".to_owned(),
            ..spec("eu-central-1", "t3.micro", "")
        });
        let mut fields: Vec<&str> = refused.iter().map(|error| error.field).collect();
        fields.dedup();
        assert_eq!(fields, ["region", "name", "size", "image", "user_data", "ssh_keys"]);
        let size = refused.iter().find(|error| error.field == "size").map(|error| error.detail.clone());
        assert!(size.is_some_and(|detail| detail.contains("1cpu-1024mb, 1cpu-2048mb, 2cpu-2048mb")));
    }
}
