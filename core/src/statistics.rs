//! Counters as a list, to print or export them.
//!
//! ```
//! use statestore_proto::client::{Client, ClientConfig};
//! use statestore_proto::machine::{Input, Machine as _};
//! use statestore_proto::time::Now;
//!
//! let mut client = Client::new(ClientConfig::new("c1", *b"8 random"))?;
//! client.handle(Now::default(), Input::Connected { session_present: false });
//! assert_eq!(client.counters().to_string(), "connections 1"); // without zeros
//! let sum: u64 = client.counters().iter().map(|statistic| statistic.value).sum(); // with zeros
//! assert_eq!(sum, 1);
//! # Ok::<(), statestore_proto::client::ConfigError>(())
//! ```

use core::fmt;

use crate::message::{Refusal, RequestKind};

/// A counter with its name and labels.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Statistic {
    /// Name of the counter, in lower case with underscores.
    pub name: &'static str,
    /// Kind of request, if the counter is per kind.
    pub verb: Option<RequestKind>,
    /// Refusal, if the counter is per refusal.
    pub reason: Option<Refusal>,
    /// Value of the counter.
    pub value: u64,
}

impl Statistic {
    pub(crate) const fn plain(name: &'static str, value: u64) -> Self {
        Self { name, verb: None, reason: None, value }
    }

    pub(crate) const fn of(verb: Option<RequestKind>, name: &'static str, value: u64) -> Self {
        Self { name, verb, reason: None, value }
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

/// Prints the counters that are not zero, separated by commas.
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
