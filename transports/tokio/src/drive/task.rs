//! The interface between the drive loop and a task: a client with its callers, or a store with its
//! journal.

use statestore_proto::machine::{Input, Machine};
use statestore_proto::time::Now;
use statestore_proto::transport::{ReasonCode, Transmit};

use crate::drive::clock::Clock;
use crate::journal::JournalError;
use crate::link::{LinkError, LinkErrorKind};

/// A state machine with the handling of its commands and outputs.
pub(crate) trait Task: Send + 'static {
    type Machine: Machine;

    /// A command of a handle.
    type Command: Send + 'static;

    fn machine(&mut self) -> &mut Self::Machine;

    /// Runs before the first connection. An error is final.
    fn prepare(&mut self, _: &Clock) -> impl Future<Output = Result<(), JournalError>> + Send {
        core::future::ready(Ok(()))
    }

    /// Waits for background work to complete, after which
    /// [`process_outputs`](Self::process_outputs) must be called. An error is final. May be dropped
    /// at any await.
    fn background_work(&mut self) -> impl Future<Output = Result<(), JournalError>> + Send {
        core::future::pending()
    }

    /// The loop is about to end: no optional work may start.
    fn prepare_shutdown(&mut self) {}

    /// Returns whether no background work is in progress.
    fn is_done(&self) -> bool {
        true
    }

    /// Returns whether the task can receive messages; otherwise they stay in the link.
    fn can_receive(&mut self) -> bool {
        self.machine().can_receive()
    }

    /// Passes an input to the machine and updates statistics.
    fn handle_input(&mut self, now: Now, input: Input<'_>);

    fn handle_command(&mut self, now: Now, command: Self::Command);

    /// Returns whether the task can accept another command; otherwise commands stay in the queue.
    fn can_accept_command(&self) -> bool;

    /// Publishes the statistics before a packet is sent, so that they contain the effects of each
    /// request that has a response.
    fn publish_stats(&mut self) {}

    /// Handles a packet that the link has accepted. For a response of a store, `_answers` is the
    /// number of the request.
    fn handle_sent(&mut self, _answers: Option<u64>) {}

    /// Takes the error that makes this connection useless, if there is one.
    fn take_connection_error(&mut self) -> Option<LinkError>;

    /// Takes a packet that the broker acknowledges, if a request has timed out on this connection.
    fn take_probe(&mut self) -> Option<Transmit> {
        None
    }

    /// Handles an error of the link.
    fn handle_link_error(&mut self, _: &LinkError) {}

    /// Handles the outputs of the machine.
    fn process_outputs(&mut self, now: Now);
}

/// The error of a refused subscription without which the connection is useless.
pub(crate) fn subscription_refused(filter: &str, reason: ReasonCode) -> LinkError {
    let text = format!("cannot subscribe to {filter}: {reason}");
    LinkError::new(LinkErrorKind::SubscriptionRefused, text).with_reason(reason)
}
