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

/// Declares the counters of a machine. The name of a [`Statistic`] is that of its field.
///
/// A machine that counts requests of an unknown kind has one row more than there are kinds; one
/// that counts unknown errors has one place more than there are refusals.
macro_rules! counters {
    (
        rows: $rows:expr;
        refusals: $refusals:expr;
        $(#[$outcomes_doc:meta])*
        outcomes { $($(#[$outcome_doc:meta])* $outcome:ident,)* }
        $(#[$counters_doc:meta])*
        counters { $($(#[$counter_doc:meta])* $counter:ident,)* }
    ) => {
        $(#[$outcomes_doc])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        #[non_exhaustive]
        pub struct OutcomeCounts {
            $($(#[$outcome_doc])* pub $outcome: u64,)*
            refused: [u64; $refusals],
        }

        impl OutcomeCounts {
            /// Requests that were refused.
            #[must_use]
            pub fn refused(&self) -> u64 {
                self.refused.iter().sum()
            }

            /// Requests that were refused with this error.
            #[must_use]
            pub fn refused_for(&self, reason: Refusal) -> u64 {
                self.refused.get(reason as usize).copied().unwrap_or_default()
            }

            fn iter(&self, verb: Option<RequestKind>) -> impl Iterator<Item = Statistic> {
                let outcomes = [$((stringify!($outcome), None, self.$outcome)),*];
                let reasons = Refusal::ALL.iter().copied().map(Some).chain([None]);
                let refused = reasons.zip(self.refused);
                let refused = refused.map(|(reason, value)| ("refused", reason, value));
                let all = outcomes.into_iter().chain(refused);
                all.map(move |(name, reason, value)| Statistic { name, verb, reason, value })
            }
        }

        $(#[$counters_doc])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        #[non_exhaustive]
        pub struct Counters {
            by_kind: [OutcomeCounts; $rows],
            $($(#[$counter_doc])* pub $counter: u64,)*
        }

        impl Counters {
            /// The outcomes of requests of this kind.
            #[must_use]
            pub fn of(&self, kind: RequestKind) -> &OutcomeCounts {
                // Each kind has a row.
                let [first, ..] = &self.by_kind;
                self.by_kind.get(kind as usize).unwrap_or(first)
            }

            /// All counters in a fixed order, including those that are zero.
            pub fn iter(&self) -> impl Iterator<Item = Statistic> {
                let kinds = RequestKind::ALL.iter().copied().map(Some).chain([None]);
                let rows = kinds.zip(&self.by_kind).flat_map(|(kind, counts)| counts.iter(kind));
                let (verb, reason) = (None, None);
                let counters = [$((stringify!($counter), self.$counter)),*].into_iter();
                let counters =
                    counters.map(move |(name, value)| Statistic { name, verb, reason, value });
                rows.chain(counters)
            }
        }

        /// Prints the counters that are not zero.
        impl core::fmt::Display for Counters {
            fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
                crate::statistics::print(f, self.iter())
            }
        }
    };
}

pub(crate) use counters;

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
