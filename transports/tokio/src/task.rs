//! What the drive loop drives: a machine with those who wait for it, or a store with what is told of it.

use statestore_proto::machine::{Input, Machine};
use statestore_proto::mqtt::ReasonCode;
use statestore_proto::time::Now;

use crate::clock::Clock;

/// A state machine and what its outputs lead to.
pub(crate) trait Task: Send + 'static {
    type Machine: Machine;

    /// What handles ask of it.
    type Op: Send + 'static;

    fn machine(&mut self) -> &mut Self::Machine;

    /// What comes before the first connection. An error is final.
    fn prepare(&mut self, _: &Clock) -> impl Future<Output = Result<(), String>> + Send {
        core::future::ready(Ok(()))
    }

    /// Waits until it has to be [settled](Self::settle) again for what it does by itself; an error is final. May be dropped
    /// at any await.
    fn work(&mut self) -> impl Future<Output = Result<(), String>> + Send {
        core::future::pending()
    }

    /// It is about to end: nothing is begun that can wait.
    fn end_soon(&mut self) {}

    /// Whether nothing is under way that it does by itself.
    fn is_done(&self) -> bool {
        true
    }

    /// Passes an input on to the machine, and notes what is of interest in it.
    fn input(&mut self, now: Now, input: Input<'_>);

    fn op(&mut self, now: Now, op: Self::Op);

    /// Whether there is room for another operation; otherwise it stays with the handle.
    fn wants_ops(&self) -> bool;

    /// The link has taken a packet; if it is a reply of a store, the one to the message of this number.
    fn sent(&mut self, _answers: Option<u64>) {}

    /// Why nothing can arrive on this connection, if so. Returned once.
    fn refused(&mut self) -> Option<String>;

    /// Passes on whatever the machine has to tell.
    fn settle(&mut self, now: Now);
}

/// What is said of a SUBACK without which nothing works.
pub(crate) fn subscription_refused(filter: &str, reason: ReasonCode) -> String {
    format!("the broker refused the subscription to {filter}: {reason}")
}
