//! What null means in a body.

/// How a body treats null in a field with a default. `IsLeftOut` (create): null is refused unless the field is nullable.
/// `Clears` (patch): null restores the default.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum NullField {
    IsLeftOut,
    Clears,
}
