//! JSON pointers (RFC 6901).

/// The pointer to an entry of the value that another points to.
pub fn join_pointer(pointer: &str, key: &str) -> String {
    format!("{pointer}/{}", escape_key(key))
}

pub fn escape_key(key: &str) -> String {
    key.replace('~', "~0").replace('/', "~1")
}
