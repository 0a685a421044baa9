//! What null means in a body.

/// How a body treats null in a field with a default. `Refused` (create): null is refused unless the field is nullable.
/// `Clears` (patch): null restores the default.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum NullInput {
    Refused,
    Clears,
}
