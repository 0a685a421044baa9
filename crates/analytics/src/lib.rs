//! Figures of a tenant and of the platform.
//!
//! Every change writes a fact in its transaction (`Tx::record_fact` of the kernel). `fold` takes facts out of their queue and
//! adds them to the sums of their quarter of an hour, hour, day and week. `rollups` reads sums, `report` makes the figures of a
//! range of them, `shown` says what each figure means, and `families` how they are grouped. Requests and searches are metered in
//! memory by the kernel, which writes a fact of them every second. `rebuild` adds all up again, and `recount` compares the result
//! with the records.

mod answer;
pub mod backfill {
    pub mod store;
}
mod buckets;
mod csv;
pub mod families;
pub mod fold {
    pub mod store;
}
pub mod grain;
pub mod platform;
mod query;
pub mod rebuild {
    pub mod store;
}
mod recount {
    pub mod store;
}
pub mod report;
mod rollups {
    pub mod store;
}
pub mod shown;
pub mod tenant;
