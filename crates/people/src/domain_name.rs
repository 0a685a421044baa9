//! Domain names, of organizations and of identity providers.

/// The limits of DNS for a name and for each of its parts (RFC 1035).
const DOMAIN_BYTES_MAX: usize = 253;
const PART_BYTES_MAX: usize = 63;

/// Whether this is a DNS name in lower case, of at least two parts. A name whose last part is a number is an IP address.
pub fn is_domain_name(name: &str) -> bool {
    let is_part = |part: &str| {
        (1..=PART_BYTES_MAX).contains(&part.len())
            && part.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-')
            && !part.starts_with('-')
            && !part.ends_with('-')
    };
    let ends_in_number = name.rsplit('.').next().is_some_and(|last| last.bytes().all(|byte| byte.is_ascii_digit()));
    name.len() <= DOMAIN_BYTES_MAX && name.contains('.') && name.split('.').all(is_part) && !ends_in_number
}
