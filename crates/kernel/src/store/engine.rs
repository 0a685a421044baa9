//! The engines that can hold the data.

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DatabaseEngine {
    Sqlite,
    Postgres,
}
