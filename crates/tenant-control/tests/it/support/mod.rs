//! What the tests share.

pub mod answer;
pub mod backups;
pub mod call;
pub mod clouds;
pub mod cluster;
pub mod command;
pub mod contract;
pub mod devices;
pub mod dice;
pub mod idp;
pub mod keeper;
pub mod load;
pub mod nodes;
pub mod people;
pub mod postgres;
pub mod process;
pub mod raw;
pub mod receiver;
pub mod search;
pub mod server;
pub mod stores;
pub mod verifiers;
pub mod workflows;

pub use answer::Answer;
pub use people::{Key, Tenancy};
pub use raw::send_raw;
pub(crate) use server::over_http;
pub use server::{Server, Setup};
