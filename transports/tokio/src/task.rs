//! What the drive loop drives: a machine with those who wait for it, or a store with what is told of it.

use statestore_proto::machine::{Input, Machine};
use statestore_proto::mqtt::ReasonCode;
use statestore_proto::time::Now;

/// A state machine and what its outputs lead to.
pub(crate) trait Task: Send + 'static {
    type Machine: Machine;

    /// What handles ask of it.
    type Op: Send + 'static;

    fn machine(&mut self) -> &mut Self::Machine;

    /// Passes an input on to the machine, and notes what is of interest in it.
    fn input(&mut self, now: Now, input: Input<'_>);

    fn op(&mut self, now: Now, op: Self::Op);

    /// Whether there is room for another operation; otherwise it stays with the handle.
    fn wants_ops(&self) -> bool;

    /// Why nothing can arrive on this connection, if so. Returned once.
    fn refused(&mut self) -> Option<String>;

    /// Passes on whatever the machine has to tell.
    fn settle(&mut self, now: Now);
}

/// What is said of a SUBACK without which nothing works.
pub(crate) fn subscription_refused(filter: &str, reason: ReasonCode) -> String {
    format!("the broker refused the subscription to {filter}: {reason}")
}
