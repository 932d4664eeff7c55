//! The fenced chain of transactions, without I/O: the next transaction, and the meaning of its
//! outcome.
//!
//! A transaction takes effect only if the head is still that of the previous transaction. So the
//! transactions of a writer take effect in order and once, however often they are sent, and none
//! takes effect after another writer has raised the epoch. This depends neither on leases nor on
//! clocks.

use statestore_proto::hlc::Version;
use statestore_proto::time::UnixTime;

use crate::head::{Head, later};

/// The chain, as one writer extends it.
#[derive(Clone, Debug)]
pub(crate) struct Chain {
    /// Head that the transaction must find.
    head: Head,
    /// Head that the transaction writes; `None` if it only compares.
    next: Option<Head>,
}

/// Result of sending a transaction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// The head matched, and everything was written.
    Succeeded,
    /// The head was this one, and nothing was written.
    Failed(Option<Head>),
    /// The transaction may have taken effect, may take effect later, or never.
    NoReply,
}

/// Consequence of an outcome.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// The transaction has taken effect.
    Done,
    /// The same transaction must be sent again.
    Again,
    /// Another writer is ahead. The transaction will not take effect any more. If it was sent more
    /// than once, it may have taken effect before.
    Deposed {
        /// Head in etcd.
        by: Head,
    },
    /// The head is missing, earlier than before, or written by another program.
    Broken {
        /// Head in etcd.
        found: Option<Head>,
    },
}

impl Chain {
    /// Begins the first transaction of a writer, which raises the epoch of the head that it has
    /// seen.
    pub(crate) fn claim(seen: Head, writer: i64, now: UnixTime) -> Self {
        let next = Head {
            epoch: seen.epoch.saturating_add(1),
            sequence: seen.sequence.saturating_add(1),
            written: now,
            writer,
            clock: seen.clock.clone(),
        };
        Self { head: seen, next: Some(next) }
    }

    /// Begins a transaction that writes something.
    pub(crate) fn begin(&mut self, clock: Option<Version>, now: UnixTime) {
        self.next = Some(Head {
            sequence: self.head.sequence.saturating_add(1),
            written: now,
            clock: later(self.head.clock.clone(), clock),
            ..self.head.clone()
        });
    }

    /// Begins a transaction that only checks that this writer still leads.
    pub(crate) fn begin_barrier(&mut self) {
        self.next = None;
    }

    /// Returns the head that the transaction must find.
    pub(crate) const fn head(&self) -> &Head {
        &self.head
    }

    /// Returns the head that the transaction writes.
    pub(crate) const fn next(&self) -> Option<&Head> {
        self.next.as_ref()
    }

    /// Handles the outcome of the transaction.
    pub(crate) fn outcome(&mut self, outcome: Outcome) -> Verdict {
        let found = match outcome {
            Outcome::NoReply => return Verdict::Again,
            Outcome::Succeeded => return self.done(),
            Outcome::Failed(found) => found,
        };
        let Some(by) = found else { return Verdict::Broken { found: None } };
        // An earlier attempt took effect, and only its reply was lost.
        if self.next.as_ref() == Some(&by) {
            return self.done();
        }
        let is_ahead = (by.epoch, by.sequence) > (self.head.epoch, self.head.sequence);
        // Within its epoch only this writer raises the sequence. A claim is different: until it
        // takes effect, the previous leader can still raise the sequence.
        let is_claim = self.next.as_ref().is_some_and(|next| next.epoch != self.head.epoch);
        if is_ahead && (is_claim || by.epoch > self.head.epoch) {
            Verdict::Deposed { by }
        } else {
            Verdict::Broken { found: Some(by) }
        }
    }

    fn done(&mut self) -> Verdict {
        if let Some(next) = self.next.take() {
            self.head = next;
        }
        Verdict::Done
    }
}

#[cfg(test)]
mod tests;
