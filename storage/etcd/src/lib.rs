//! A journal for a state store over etcd: one store leads and serves, others stand by and take over what it has written.
//!
//! ```
//! use statestore_etcd::{EtcdJournal, Options, Role};
//! use statestore_tokio::StoreService;
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let journal = EtcdJournal::new(Options::new(["http://127.0.0.1:2379"]).name("edge-2"))?;
//! let mut role = journal.role();
//! assert!(matches!(role.current(), Role::Standby { leader: None, .. }));
//! let service = StoreService::builder().journal(journal);
//! # drop(service);
//! # Ok(())
//! # }
//! ```
//!
//! # One leads
//!
//! [`load`](statestore_tokio::service::Journal::load) is the standby: it reads everything, follows by a watch what the leader writes, and
//! ends when this store leads. A service connects to its broker after that, so a standby does nothing that anybody sees.
//! Nothing is lost when it takes over: all that was acknowledged is in etcd, requests that were not acknowledged the broker
//! delivers to the new leader if its store has the same client id and a session that is kept, and those that had taken
//! effect get the answer that was recorded with it.
//!
//! All stores below one [prefix](Options::prefix) are one store. Each transaction compares one key, `head`, with what this writer
//! left there, and raises it. So of two stores that both believe to lead only one can write, and what the other sends
//! has no effect, however late it arrives. Leases decide only who tries, and when:
//!
//! * A leader that is gone is followed after what is left of its [lease](Options::lease), 5 s by default;
//! * one that [resigns](Leadership::resign) at once. Shut the service down, and then resign;
//! * one that cannot reach etcd stops after four fifths of the lease, and [`Role`] says so without a commit.
//!
//! An error of a commit is the end of the service, as with any journal: end the process or make a new journal and a new
//! service, which is a standby then. What was not acknowledged is in nobody's hands but the broker's.
//!
//! # What a read promises
//!
//! A store reads from memory. What that is worth depends on what comes before the answer:
//!
//! | Before the answer | What it promises |
//! |---|---|
//! | a commit that was begun after the request came, without records where there are none: [`linearizable_reads`](statestore_tokio::service::StoreConfig::linearizable_reads) | no other store led before it was done: reads are linearizable. Without records it takes a round trip to a majority of etcd and writes nothing |
//! | [`Leadership::is_held`] | no other store led at that moment, as long as the clocks of all machines run equally within a fifth of the lease and this process was not stopped since |
//! | nothing, which is what a store does unless it is told otherwise | what the store held when it led last: after a take-over that it has not noticed, as old as that |
//!
//! In any case a read of a key that is just being written waits for that commit.
//!
//! **A process that is stopped** (`SIGSTOP`, a debugger, a virtual machine that is moved) for longer than the lease goes on
//! where it was when it runs again. It may then send what was ready to be sent: answers to writes that had taken effect, which
//! stay true, and answers to reads, which may be old. It writes nothing: its next commit finds another head. The time in which a
//! machine is suspended counts on Linux, so that a lease that ended meanwhile is not held when it goes on.
//!
//! A leader without anything to commit looks at the head each time it renews its lease, and stops when that is not what it
//! left there.
//!
//! # Clocks
//!
//! Versions do not go back with a new leader: `head` has the last version issued, and the next leader begins past it. A standby
//! compares its wall clock with the leader's. One that is more than a second off warns, and lets others go first for twice
//! the lease; one that is more than a minute behind the last version, so that it would refuse every SET, never leads.
//!
//! # etcd
//!
//! 3.4.21 or later of 3.4, or 3.5.3 or later; three members on three disks, or the store is no safer than on one disk. These settings
//! belong to it:
//!
//! | | |
//! |---|---|
//! | `--auto-compaction-mode periodic --auto-compaction-retention 5m` | every commit leaves an old `head` behind, so without it the database grows for ever. A standby that was away for longer reads everything again |
//! | `--quota-backend-bytes` | 2 GiB unless it is told otherwise. A million keys with values of 64 bytes take more than half a gigabyte. A full database (`NOSPACE`) is the end of the service, and stays so until somebody makes room and disarms the alarm |
//! | `--max-request-bytes`, `--max-txn-ops` | not less than their defaults, 1.5 MiB and 128. A value has [`MAX_VALUE_BYTES`] with its key at most |
//! | a user whose role has `readwrite` on the [prefix](Options::prefix), and no other | nobody else is to write there; what is not a store's is refused and named, and nothing of it is used |
//! | `--cert-file`, `--client-cert-auth`, `--trusted-ca-file` | with the feature `tls` of this package; values cross the network |
//!
//! Keys and values are plain to read with `etcdctl get --prefix`; the head is one line:
//! epoch, sequence, the writer's clock in milliseconds, its lease, and the last version.
//!
//! Back it up as etcd is backed up (`etcdctl snapshot save`). Restore it while no store runs: one that finds an earlier head than it
//! has seen ends and says so.
//!
//! # Bounds
//!
//! One transaction is under way at a time. One has 125 records and 1 MiB of them at most; a commit that is larger is cut between
//! two requests, and if it fails in the middle, what came before is kept. A standby has the names of all keys twice, and
//! pages of 16 MiB while it reads; no message of more than 64 MiB is taken. Answers take 64 MiB in etcd at most. A
//! standby that cannot reach etcd waits and warns; only at its first contact it gives up at once.
//!
//! One member is asked at a time, and the next after a failure. A call takes a quarter of the lease at most, and 2 s: a member
//! that hangs is found after that, one that is down at once. A page may take 30 s, and letting a user in 10 s, once for each member.
//!
//! # Building
//!
//! The client of etcd takes `protoc` and the well-known protocol buffers: on Debian `protobuf-compiler` and `libprotobuf-dev`.
#![forbid(unsafe_code)]

mod answers;
mod batch;
mod campaign;
#[cfg(feature = "tls")]
mod certificates;
mod chain;
mod client;
mod clock;
mod entry;
mod error;
mod head;
mod journal;
mod keys;
mod known;
mod leadership;
mod lease;
mod leased_link;
mod limits;
mod options;
mod presence;
mod reader;
mod role;
mod skew;
mod standby;
mod strangers;
mod survey;
mod transaction;
mod wall;
#[cfg(test)]
mod world;

pub use error::OptionsError;
pub use journal::EtcdJournal;
pub use leadership::Leadership;
pub use leased_link::LeasedLink;
pub use limits::MAX_VALUE_BYTES;
pub use options::Options;
#[cfg(feature = "tls")]
pub use options::Tls;
pub use presence::StandbyStatus;
pub use role::{Leader, Role, RoleWatch};
pub use survey::{Survey, SurveyError};

/// The program in the README of this package.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
