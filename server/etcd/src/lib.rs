//! Replicated storage for a state store: a journal over etcd, with one leader and standbys.
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
//! # Leader and standbys
//!
//! All stores with the same [prefix](Options::prefix) are one store: one of them leads and serves.
//! The others are standbys. [`load`](statestore_tokio::service::Journal::load) is the standby: it
//! reads all records, follows the leader's writes by a watch of etcd, and returns `None` when this
//! store leads. The service connects to its broker only after that, so a standby is invisible to
//! clients.
//!
//! A failover loses nothing:
//!
//! - Everything that was acknowledged is in etcd.
//! - The broker redelivers unacknowledged requests to the new leader, if both stores have the same
//!   client id and a persistent session.
//! - A redelivered request that had taken effect gets the response that was recorded with it.
//!
//! Each transaction compares one key, `head`, with the value that this writer left there, and
//! raises it. If two stores both believe that they lead, only one of them can write. Transactions
//! of the other have no effect, however late they arrive. Leases only decide when another store
//! tries to lead:
//!
//! - If the leader dies, after the rest of its [lease](Options::lease), by default 5 s.
//! - If the leader [resigns](Leadership::resign), at once. Shut the service down before it resigns.
//! - A leader that cannot reach etcd stops after four fifths of its lease. [`Role`] reports this
//!   without a commit.
//!
//! An error of a commit ends the service, as with any journal. Exit the process, or create a new
//! journal and a new service, which becomes a standby. The broker redelivers the unacknowledged
//! requests.
//!
//! # Consistency of reads
//!
//! A store reads from memory. How recent that is depends on what the store does before it responds:
//!
//! - With [`linearizable_reads`][linearizable], it waits for a commit that began after the request
//!   arrived, if necessary one without records. Such a commit proves that no other store led before
//!   it finished, so reads are linearizable. Without records it costs one round trip to a majority
//!   of etcd and writes nothing.
//! - If it checks [`Leadership::is_held`], no other store led at that moment. This requires that
//!   the clocks of all machines run at equal rates within a fifth of the lease, and that this
//!   process was not stopped since the check.
//! - By default it does nothing. After a failover that the store has not noticed, a response can be
//!   as old as that failover.
//!
//! In all cases, a read of a key that is being written waits for that commit.
//!
//! [linearizable]: statestore_tokio::service::StoreConfig::linearizable_reads
//!
//! **A process can be stopped** by `SIGSTOP`, by a debugger, or with its virtual machine, for
//! longer than the lease. When it continues, it can still send prepared responses: those to writes
//! that took effect, which are correct, and those to reads, which may be stale. It cannot write,
//! because its next commit finds another head. On Linux the time of a suspended machine counts, so
//! a lease that expired during that time is not held afterwards.
//!
//! A leader without commits compares the head each time it renews its lease, and stops if another
//! writer has changed it.
//!
//! # Clocks
//!
//! Versions never decrease: `head` contains the last version that was issued, and the next leader
//! continues after it. A standby compares its wall clock with the leader's. If they differ by more
//! than a second, it logs a warning and delays its candidacy by twice the lease. If its clock is
//! more than a minute behind the last version, it never leads, because it would refuse every SET.
//!
//! # etcd
//!
//! Use etcd 3.4.21 or later of 3.4, or 3.5.3 or later, with three members on three disks.
//! Otherwise the store is no safer than on one disk. These settings are required:
//!
//! - `--auto-compaction-mode periodic --auto-compaction-retention 5m`: each commit leaves an old
//!   revision of `head`, so without compaction the database grows without limit. A standby that was
//!   disconnected for longer than this reads everything again.
//! - `--quota-backend-bytes`: the default is 2 GiB. A million keys with values of 64 bytes take
//!   more than half a gigabyte. A full database (`NOSPACE`) ends the service until an operator
//!   frees space and disarms the alarm.
//! - `--max-request-bytes` and `--max-txn-ops`: at least their defaults, 1.5 MiB and 128. A key and
//!   its value have at most [`MAX_VALUE_BYTES`] together.
//! - A user whose role has `readwrite` on the [prefix](Options::prefix). No other user may write
//!   there. Stores refuse or ignore data of other programs, and log it.
//! - `--cert-file`, `--client-cert-auth` and `--trusted-ca-file`, with the feature `tls` of this
//!   package: values cross the network.
//!
//! `etcdctl get --prefix` prints the keys and values. The head is one line: epoch, sequence, wall
//! clock of the writer in milliseconds, lease of the writer, and last version.
//!
//! Back up etcd itself (`etcdctl snapshot save`). Restore it only while no store runs: a store that
//! finds an earlier head than it has seen ends with an error.
//!
//! # Limits
//!
//! - One transaction is in progress at a time, with at most 125 records and about 1 MiB. A larger
//!   commit is split between two requests. If it fails in the middle, its first transactions
//!   remain.
//! - A standby holds the names of all keys twice, and pages of 16 MiB while it reads. It rejects
//!   messages of more than 64 MiB.
//! - Recorded responses take at most 64 MiB in etcd.
//! - A standby that cannot reach etcd logs a warning and waits. Only its first contact fails at
//!   once.
//! - Calls go to one member, and after a failure to the next. A call takes at most a quarter of the
//!   lease and at most 2 s. A member that hangs is detected after that, a stopped member at once.
//! - Reading a page takes at most 30 s, and logging in at most 10 s, once for each member.
//!
//! # Building
//!
//! The etcd client requires `protoc` and the well-known protocol buffers: `protobuf-compiler` and
//! `libprotobuf-dev` on Debian.
#![forbid(unsafe_code)]

mod batch;
mod boot_clock;
mod campaign;
#[cfg(feature = "tls")]
mod certificates;
mod chain;
mod client;
mod entry;
mod error;
mod foreign_keys;
mod head;
mod journal;
mod keys;
mod known_head;
mod leadership;
mod lease;
mod leased_link;
mod limits;
mod options;
mod presence;
mod reader;
mod response_log;
mod role;
#[cfg(test)]
mod simulation;
mod skew;
mod standby;
mod survey;
mod transaction;
mod wall_clock;

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

/// Compiles the program in the README of this package.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
