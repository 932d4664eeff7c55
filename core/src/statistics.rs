//! Counters as a list, for whoever prints or exports them.
//!
//! ```
//! use statestore_proto::client::{Client, ClientConfig};
//! use statestore_proto::time::Now;
//!
//! let mut client = Client::new(ClientConfig::new("c1", *b"8 random")?);
//! client.handle_connected(Now::default(), false);
//! assert_eq!(client.counters().to_string(), "connections 1"); // those that are not zero
//! let sum: u64 = client.counters().iter().map(|statistic| statistic.value).sum(); // all of them
//! assert_eq!(sum, 1);
//! # Ok::<(), statestore_proto::client::ConfigError>(())
//! ```

use core::fmt;

use crate::message::{CommandKind, Refusal};

/// One counter with what it is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Statistic {
    /// What is counted, in lower case with underscores.
    pub name: &'static str,
    /// Of which command only, if of one.
    pub verb: Option<CommandKind>,
    /// For which refusal only, if for one.
    pub reason: Option<Refusal>,
    /// How often, or how much.
    pub value: u64,
}

impl Statistic {
    pub(crate) const fn plain(name: &'static str, value: u64) -> Self {
        Self { name, verb: None, reason: None, value }
    }

    pub(crate) const fn of(verb: Option<CommandKind>, name: &'static str, value: u64) -> Self {
        Self { name, verb, reason: None, value }
    }
}

impl CommandKind {
    /// Its name in lower case, as a label of a metric.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Get => "get",
            Self::Set => "set",
            Self::Del => "del",
            Self::VDel => "vdel",
            Self::Watch => "keynotify",
            Self::Unwatch => "keynotify_stop",
            Self::Scan => "scan",
        }
    }
}

impl fmt::Display for Statistic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(verb) = self.verb {
            write!(f, "{verb} ")?;
        }
        f.write_str(self.name)?;
        if let Some(reason) = self.reason {
            write!(f, " ({reason})")?;
        }
        write!(f, " {}", self.value)
    }
}

/// Prints those that are not zero, with commas between them.
pub(crate) fn print(
    f: &mut fmt::Formatter<'_>,
    statistics: impl Iterator<Item = Statistic>,
) -> fmt::Result {
    let mut separator = "";
    for statistic in statistics.filter(|statistic| statistic.value > 0) {
        write!(f, "{separator}{statistic}")?;
        separator = ", ";
    }
    if separator.is_empty() { f.write_str("nothing") } else { Ok(()) }
}
