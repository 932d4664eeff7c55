//! The loop that a driver owes a machine, once for clients and stores: the one of [`statestore_proto::machine`].

use std::ops::ControlFlow;

use statestore_proto::machine::{Input, Machine};
use statestore_proto::time::{Instant, Now};

use super::connection::{Clock, Connection};
use super::session::{Error, News};

/// Drives `machine` over `connection` until the application says that it is done, or the connection is lost.
///
/// The application is called after everything that happens. It submits requests and takes events, and says when it
/// wants to be called at the latest. Once it is done, the connection is as good as before and may be driven on.
///
/// # Errors
/// Why the connection is lost. The machine was told.
pub fn drive<M: Machine>(
    machine: &mut M,
    connection: &mut Connection,
    clock: Clock,
    mut application: impl FnMut(Now, &mut M) -> ControlFlow<(), Option<Instant>>,
) -> Result<(), Error> {
    loop {
        // 1. The application: submit requests, take events.
        let step = application(clock.now(), machine);
        // 2. Send what there is, in order, while there is room for it.
        while connection.has_room() {
            let Some(transmit) = machine.poll_transmit() else { break };
            connection.send(&transmit);
        }
        let ControlFlow::Continue(wake) = step else {
            return connection.flush().inspect_err(|_| lost(machine, clock));
        };
        // 3. Wait for news, but no longer than machine and application allow, and for a message only if there is room.
        let until = [machine.poll_timeout(), wake].into_iter().flatten().min();
        let received = connection.receive_before(until, machine.wants_messages());
        // 4. Tell the machine what happened and what time it is.
        let now = clock.now();
        match received {
            Ok(None) => machine.handle(now, Input::Timeout),
            Ok(Some(News::Connected { session_present })) => {
                machine.handle(now, Input::Connected { session_present });
            }
            Ok(Some(News::Subscribed(token, reason))) => {
                machine.handle(now, Input::Subscribed(token, reason));
            }
            Ok(Some(News::Published(token, reason))) => {
                machine.handle(now, Input::Published(token, reason));
            }
            // The machine knows nothing of room; what waited for it is polled now.
            Ok(Some(News::Room)) => {}
            Ok(Some(News::Message(message))) => {
                message.show(|incoming| machine.handle(now, Input::Message(incoming)));
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
