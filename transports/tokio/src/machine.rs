//! What the drive loop drives: a client with those who wait for it, or a store.

use statestore_proto::mqtt::{Incoming, PublishToken, ReasonCode, SubscribeToken, Transmit};
use statestore_proto::time::{Instant, Now};

/// A state machine and what its outputs lead to.
pub(crate) trait Machine: Send + 'static {
    /// What handles ask of it.
    type Command: Send + 'static;

    fn connected(&mut self, now: Now, session_present: bool);
    fn disconnected(&mut self, now: Now);
    fn subscribed(&mut self, now: Now, token: SubscribeToken, reason: ReasonCode);
    fn published(&mut self, now: Now, token: PublishToken, reason: ReasonCode);
    fn message(&mut self, now: Now, incoming: &Incoming<'_>);
    fn client_gone(&mut self, client_id: &str);
    fn command(&mut self, now: Now, command: Self::Command);
    fn timeout(&mut self, now: Now);

    fn poll_transmit(&mut self) -> Option<Transmit>;
    fn poll_timeout(&self) -> Option<Instant>;

    /// Whether it is connected and what it needs is subscribed.
    fn is_ready(&self) -> bool;
    /// Whether there is room for another message; otherwise it stays with the broker.
    fn wants_messages(&self) -> bool;
    /// Whether there is room for another command; otherwise it stays with the handle.
    fn wants_commands(&self) -> bool;
    /// Passes on whatever the machine has to tell.
    fn settle(&mut self, now: Now);
}
