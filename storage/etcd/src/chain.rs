//! The fenced chain, without I/O: which transaction comes next, and what its outcome means.
//!
//! A transaction is done only if the head is still the one before it. So transactions of one writer take effect in order
//! and once, however often they are sent, and none does after another writer has raised the epoch. Nothing of that rests
//! on leases or clocks.

use statestore_proto::hlc::Version;
use statestore_proto::time::UnixTime;

use crate::head::{Head, later};

/// One writer's end of the chain.
#[derive(Clone, Debug)]
pub(crate) struct Chain {
    /// The head that the transaction must find.
    head: Head,
    /// The head that it leaves; `None` where it leaves it as it is.
    next: Option<Head>,
}

/// What became of a transaction that was sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// The head was the one before, and everything was written.
    Succeeded,
    /// The head was this one, and nothing was written.
    Failed(Option<Head>),
    /// Nobody knows.
    NoReply,
}

/// What follows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// It has taken effect.
    Done,
    /// The same transaction is to be sent again.
    Again,
    /// Another writer is ahead. The transaction will not take effect any more; whether it had before, if it was sent more than
    /// once, nobody knows.
    Deposed {
        /// The head that was found.
        by: Head,
    },
    /// The chain is not what it was: put back to an earlier state, removed, or written by something else.
    Broken {
        /// The head that was found.
        found: Option<Head>,
    },
}

impl Chain {
    /// Raises the epoch above that of a head that was seen: the first transaction of a writer.
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

    /// Begins one that only asks whether this writer still leads.
    pub(crate) fn begin_barrier(&mut self) {
        self.next = None;
    }

    /// The head that the transaction must find.
    pub(crate) const fn head(&self) -> &Head {
        &self.head
    }

    /// The head that it leaves.
    pub(crate) const fn next(&self) -> Option<&Head> {
        self.next.as_ref()
    }

    /// Takes what became of the transaction.
    pub(crate) fn outcome(&mut self, outcome: Outcome) -> Verdict {
        let found = match outcome {
            Outcome::NoReply => return Verdict::Again,
            Outcome::Succeeded => return self.done(),
            Outcome::Failed(found) => found,
        };
        let Some(by) = found else { return Verdict::Broken { found: None } };
        // It was sent before, and only the reply was lost.
        if self.next.as_ref() == Some(&by) {
            return self.done();
        }
        let is_ahead = (by.epoch, by.sequence) > (self.head.epoch, self.head.sequence);
        // Within its epoch nobody but this writer raises the sequence, except before a claim.
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
