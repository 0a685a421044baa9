//! The fields that a query can name, and the values they accept.

use std::net::IpAddr;

use super::addresses::compact_mac;
use super::fold::fold_value;

/// The values of `type:`, which are the kinds of records that a search finds.
pub const TYPES: [&str; 7] = ["device", "user", "organization", "ticket", "vm", "workflow", "software"];

/// A field of `field:value`. A record without the field does not match.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum QueryField {
    /// The kind of record, one of [`TYPES`].
    Type,
    /// The state of a device, ticket, virtual machine, user or workflow.
    Status,
    /// The name or slug of the organization that the record belongs to, or of the record if it is an organization.
    Org,
    /// The operating system of a device or virtual machine, with or without its version.
    Os,
    /// The serial number of a device.
    Serial,
    /// A hardware address of a device or virtual machine. A complete one is compared by its twelve digits.
    Mac,
    /// An IPv4 or IPv6 address of a device or virtual machine. A complete one is compared in its shortest form.
    Ip,
    /// The host name of a device or virtual machine.
    Host,
    /// The e-mail address of a user, or of a ticket's requester.
    Email,
    /// One of the tags of a device, ticket or organization.
    Tag,
    /// The priority of a ticket.
    Priority,
    /// The platform of a device.
    Platform,
    /// The model of a device.
    Model,
    /// The name or e-mail address of a ticket's assignee.
    Assignee,
    /// The number of a ticket, as digits without leading zeros.
    Number,
}

impl QueryField {
    /// In the order in which documents and errors list them.
    pub const ALL: [Self; 15] = [
        Self::Type,
        Self::Status,
        Self::Org,
        Self::Os,
        Self::Serial,
        Self::Mac,
        Self::Ip,
        Self::Host,
        Self::Email,
        Self::Tag,
        Self::Priority,
        Self::Platform,
        Self::Model,
        Self::Assignee,
        Self::Number,
    ];

    /// The name before the colon.
    pub const fn name(self) -> &'static str {
        self.name_and_description().0
    }

    /// One line for the documentation.
    pub const fn description(self) -> &'static str {
        self.name_and_description().1
    }

    /// Finds a field by its name, ignoring case.
    pub fn find_by_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|field| field.name().eq_ignore_ascii_case(name))
    }

    /// The names of all fields, for an error.
    pub fn joined_names() -> String {
        Self::ALL.map(Self::name).join(", ")
    }

    /// Brings a value into the form that is compared: folded, and in one notation where there are several. The error says
    /// what is wrong with the value.
    ///
    /// Stored values are normalized too, or `mac:` and `ip:` would find only values in the same notation.
    pub fn normalize_value(self, written: &str) -> Result<String, String> {
        let value = fold_value(written);
        if value.is_empty() {
            return Err(format!("`{}:` needs a value, with no space before it.", self.name()));
        }
        match self {
            Self::Type if !TYPES.contains(&value.as_str()) => {
                Err(format!("There is no such type. The types are {}.", TYPES.join(", ")))
            }
            Self::Mac => Ok(compact_mac(&value).unwrap_or(value)),
            Self::Ip => Ok(value.parse().map_or(value, |address: IpAddr| address.to_canonical().to_string())),
            Self::Number => {
                let number = find_number(value.strip_prefix('#').unwrap_or(&value));
                let number = number.ok_or("The number of a ticket is digits alone, such as `number:42`.")?;
                Ok(number.to_string())
            }
            _ => Ok(value),
        }
    }

    const fn name_and_description(self) -> (&'static str, &'static str) {
        match self {
            Self::Type => ("type", "The kind of thing: device, user, organization, ticket, vm, workflow or software."),
            Self::Status => ("status", "The state of a device, ticket, virtual machine, user or workflow."),
            Self::Org => ("org", "The name or slug of the organization."),
            Self::Os => ("os", "The operating system, with or without its version."),
            Self::Serial => ("serial", "The serial number of a device."),
            Self::Mac => ("mac", "A hardware address, in any notation."),
            Self::Ip => ("ip", "An IPv4 or IPv6 address."),
            Self::Host => ("host", "The host name of a device or virtual machine."),
            Self::Email => ("email", "The e-mail address of a user, or of who asked for a ticket."),
            Self::Tag => ("tag", "One of the tags."),
            Self::Priority => ("priority", "The priority of a ticket."),
            Self::Platform => ("platform", "The platform of a device."),
            Self::Model => ("model", "The model of a device."),
            Self::Assignee => ("assignee", "The name or e-mail address of who works on a ticket."),
            Self::Number => ("number", "The number of a ticket."),
        }
    }
}

/// Parses a ticket number; `None` if a ticket cannot have it.
pub fn find_number(text: &str) -> Option<i64> {
    let is_digits = text.bytes().all(|byte| byte.is_ascii_digit());
    text.parse().ok().filter(|number| is_digits && *number > 0)
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;

    #[test]
    fn every_field_is_found_by_its_name_and_only_once() {
        for field in QueryField::ALL {
            assert_eq!(QueryField::find_by_name(&field.name().to_uppercase()), Some(field));
            assert!(field.description().ends_with('.'), "{field:?}");
        }
        assert_eq!((QueryField::find_by_name("ty"), QueryField::find_by_name("")), (None, None));
    }

    #[test]
    fn the_description_of_type_names_all_of_them() {
        assert!(TYPES.iter().all(|name| QueryField::Type.description().contains(name)));
    }

    #[test]
    fn a_value_is_compared_in_one_notation() {
        for (field, written, value) in [
            (QueryField::Os, "  Windows \t 11 ", "windows 11"),
            (QueryField::Org, "Zürich AG", "zurich ag"),
            (QueryField::Type, "Device", "device"),
            (QueryField::Mac, "02-FC-00-00-00-01", "02fc00000001"),
            (QueryField::Mac, "02:FC", "02:fc"),
            (QueryField::Ip, "FE80:0:0:0:0:0:0:1", "fe80::1"),
            (QueryField::Ip, "::ffff:10.0.0.5", "10.0.0.5"),
            (QueryField::Ip, "10.0.0", "10.0.0"),
            (QueryField::Number, "#0042", "42"),
            (QueryField::Tag, "c++", "c++"),
        ] {
            assert_eq!(field.normalize_value(written).as_deref(), Ok(value), "{written}");
        }
    }

    #[test]
    fn a_value_that_cannot_be_is_refused() {
        for (field, written, part) in [
            (QueryField::Os, " \u{301}", "`os:` needs a value"),
            (QueryField::Type, "devices", "software"),
            (QueryField::Number, "four", "digits alone"),
            (QueryField::Number, "0", "digits alone"),
            (QueryField::Number, "+4", "digits alone"),
            (QueryField::Number, "99999999999999999999", "digits alone"),
        ] {
            let error = field.normalize_value(written).unwrap_err();
            assert!(error.contains(part), "{written}: {error}");
        }
    }
}
