//! A journal for a state store over etcd: one store leads, others stand by and take over what it has written.
#![forbid(unsafe_code)]

mod answers;
mod batch;
mod campaign;
#[cfg(feature = "tls")]
mod certificates;
mod chain;
mod client;
mod entry;
mod error;
mod head;
mod journal;
mod keys;
mod leadership;
mod lease;
mod limits;
mod options;
mod reader;
mod role;
mod skew;
mod standby;
mod transaction;
mod wall;

pub use error::OptionsError;
pub use journal::EtcdJournal;
pub use leadership::Leadership;
pub use limits::MAX_VALUE_BYTES;
pub use options::Options;
#[cfg(feature = "tls")]
pub use options::Tls;
pub use role::{Leader, Role, RoleWatch};
