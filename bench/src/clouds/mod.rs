//! Clouds, measured from outside: the release binary beside a stub of EC2 that this program serves.
//!
//! `fleet` has the machines of the stub's accounts, `stub` answers for them and notes when answers were pending, `provider`
//! is an account as a tenant of the server has it, `sync` measures syncs, `lists` the lists of a fleet.
//!
//! Deliberately left out: TLS and names, which cost the same with any client; the token bucket, which is lifted, because waiting
//! for a token is no work; the other clouds, whose answers are smaller; and PostgreSQL.

mod fleet;
mod lists;
mod provider;
mod stub;
pub mod sync;
