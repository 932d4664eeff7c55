//! The loop of a driver for clients and stores, as in [`statestore_proto::machine`].

use std::ops::ControlFlow;

use statestore_proto::machine::{Input, Machine};
use statestore_proto::time::{Instant, Now};

use super::adapter::{Error, MachineEvent};
use super::connection::{Clock, Connection};

/// Drives `machine` over `connection` until the application breaks, or the connection is lost.
///
/// The application is called after every event. It submits requests, polls events of the machine,
/// and returns the time of its next call at the latest. After a break, the connection can be driven
/// again.
///
/// # Errors
/// The reason for which the connection was lost. The machine has received the disconnection.
pub fn drive<M: Machine>(
    machine: &mut M,
    connection: &mut Connection,
    clock: Clock,
    mut application: impl FnMut(Now, &mut M) -> ControlFlow<(), Option<Instant>>,
) -> Result<(), Error> {
    loop {
        // 1. Call the application: it submits requests and polls events.
        let step = application(clock.now(), machine);
        // 2. Send the outputs of the machine in order, while the connection has capacity.
        while connection.has_capacity() {
            let Some(transmit) = machine.poll_transmit() else { break };
            connection.send(&transmit);
        }
        let ControlFlow::Continue(wake) = step else {
            return connection.flush().inspect_err(|_| lost(machine, clock));
        };
        // 3. Wait for an event until the earlier deadline of machine and application, and for a
        //    message only if the machine has capacity.
        let until = [machine.poll_timeout(), wake].into_iter().flatten().min();
        let received = connection.receive_before(until, machine.can_receive());
        // 4. Pass the event and the current time to the machine.
        let now = clock.now();
        match received {
            Ok(None) => machine.handle(now, Input::Timeout),
            Ok(Some(MachineEvent::Connected { session_present })) => {
                machine.handle(now, Input::Connected { session_present });
            }
            Ok(Some(MachineEvent::Subscribed(token, reason))) => {
                machine.handle(now, Input::Subscribed(token, reason));
            }
            Ok(Some(MachineEvent::Published(token, reason))) => {
                machine.handle(now, Input::Published(token, reason));
            }
            // No input for the machine: the next iteration polls its queued outputs.
            Ok(Some(MachineEvent::Writable)) => {}
            Ok(Some(MachineEvent::Message(message))) => {
                message.with_incoming(|incoming| machine.handle(now, Input::Message(incoming)));
            }
            Err(error) => {
                lost(machine, clock);
                return Err(error);
            }
        }
    }
}

fn lost(machine: &mut impl Machine, clock: Clock) {
    machine.handle(clock.now(), Input::Disconnected);
}
