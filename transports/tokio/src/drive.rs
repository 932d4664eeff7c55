//! The drive loop: one task with its machine, one link, one source of commands. There is no other loop.

use std::time::Duration;

use statestore_proto::machine::{Input, Machine};
use statestore_proto::mqtt::Transmit;
use tokio::sync::{mpsc, watch};
use tracing::{debug, error, info, warn};

use crate::backoff::Pauses;
use crate::clock::Clock;
use crate::link::{AsIncoming, Link, LinkError, LinkEvent};
use crate::status::Status;
use crate::task::Task;

/// How long a link that has no room, or a store that does not answer, may hold up the end.
pub(crate) const GOODBYE_MAX: Duration = Duration::from_secs(1);

/// Everything that the loop needs.
pub(crate) struct Driver<T: Task, L: Link> {
    pub(crate) task: T,
    pub(crate) link: L,
    pub(crate) commands: mpsc::Receiver<T::Op>,
    pub(crate) stop: watch::Receiver<bool>,
    pub(crate) status: watch::Sender<Status>,
    pub(crate) pauses: Pauses,
    pub(crate) clock: Clock,
}

/// Why a phase of the loop ended.
enum End {
    Stopped,
    Failed(LinkError),
    /// What the task does by itself cannot go on.
    Broken(String),
}

impl<T: Task, L: Link> Driver<T, L> {
    /// Runs until it is stopped, or until the link cannot be mended.
    pub(crate) async fn run(mut self) {
        let prepared = tokio::select! {
            prepared = self.task.prepare(&self.clock) => prepared,
            _ = self.stop.wait_for(|stop| *stop) => return,
        };
        if let Err(reason) = prepared {
            return self.broken(reason);
        }
        loop {
            match self.offline().await {
                Ok(()) => {}
                Err(End::Stopped) => return self.finish().await,
                Err(End::Broken(reason)) => return self.broken(reason),
                Err(End::Failed(error)) => {
                    if self.failed(&error) {
                        return;
                    }
                    continue;
                }
            }
            let since = tokio::time::Instant::now();
            let end = self.online().await;
            // One that is thrown out at once, by another with its client id say, is to pause longer and longer.
            if since.elapsed() > self.pauses.longest() {
                self.pauses.succeeded();
            }
            self.task.input(self.clock.now(), Input::Disconnected);
            self.task.settle(self.clock.now());
            match end {
                End::Stopped => {
                    self.link.disconnect().await;
                    return self.finish().await;
                }
                End::Broken(reason) => return self.broken(reason),
                End::Failed(error) => {
                    if self.failed(&error) {
                        return;
                    }
                }
            }
        }
    }

    /// Does what is left to be done without a connection.
    async fn finish(&mut self) {
        self.task.end_soon();
        self.task.settle(self.clock.now());
        while !self.task.is_done() {
            if let Err(reason) = self.task.work().await {
                return self.broken(reason);
            }
            self.task.settle(self.clock.now());
        }
    }

    /// What the task does by itself has failed, for good.
    fn broken(&self, reason: String) {
        error!(%reason, "giving up");
        tell(&self.status, Status::JournalFailed { reason });
    }

    /// Records a failure; returns whether it is final.
    fn failed(&mut self, error: &LinkError) -> bool {
        self.pauses.failed();
        if error.is_transient() {
            warn!(%error, "no connection, trying again");
            tell(&self.status, Status::Offline { reason: Some(error.to_string()) });
        } else {
            warn!(%error, "no connection, giving up");
            tell(&self.status, Status::Failed { reason: error.to_string() });
        }
        !error.is_transient()
    }

    /// Serves commands and deadlines while a connection is made.
    async fn offline(&mut self) -> Result<(), End> {
        let Self { task, link, commands, stop, pauses, clock, .. } = self;
        let pause = pauses.next();
        let attempt = async {
            tokio::time::sleep(pause).await;
            link.connect().await
        };
        tokio::pin!(attempt);
        let connected = loop {
            task.settle(clock.now());
            tokio::select! {
                result = &mut attempt => break result,
                command = commands.recv(), if task.wants_ops() => match command {
                    Some(command) => task.op(clock.now(), command),
                    None => return Err(End::Stopped),
                },
                () = clock.sleep_until(task.machine().poll_timeout()) => task.input(clock.now(), Input::Timeout),
                worked = task.work() => worked.map_err(End::Broken)?,
                _ = stop.wait_for(|stop| *stop) => return Err(End::Stopped),
            }
        };
        let connected = connected.map_err(End::Failed)?;
        info!(session_present = connected.session_present, "connected");
        let session_present = connected.session_present;
        task.input(clock.now(), Input::Connected { session_present });
        Ok(())
    }

    /// Moves packets until the connection is lost.
    async fn online(&mut self) -> End {
        let Self { task, link, commands, stop, status, clock, .. } = self;
        // The one packet that the link had no room for.
        let mut refused: Option<Transmit> = None;
        // Until when it may take to send the rest, once this is to stop.
        let mut stopping: Option<tokio::time::Instant> = None;
        let goodbye = || Some(tokio::time::Instant::now() + GOODBYE_MAX);
        loop {
            if stopping.is_some() {
                task.end_soon();
            }
            task.settle(clock.now());
            if let Some(reason) = task.refused() {
                link.disconnect().await;
                return End::Failed(LinkError::transient(reason));
            }
            if task.machine().is_ready() {
                tell(status, Status::Online);
            }
            while let Some(transmit) = refused.take().or_else(|| task.machine().poll_transmit()) {
                let answers = match &transmit {
                    Transmit::Publish(publish) => publish.answers(),
                    _ => None,
                };
                if let Err(transmit) = link.try_send(transmit) {
                    refused = Some(transmit);
                    break;
                }
                task.sent(answers);
            }
            if stopping.is_some() && refused.is_none() && task.is_done() {
                return End::Stopped;
            }
            tokio::select! {
                event = link.next(task.machine().wants_messages()) => match event {
                    Ok(event) => take(task, clock, event),
                    Err(error) => return End::Failed(error),
                },
                command = commands.recv(), if task.wants_ops() && stopping.is_none() => match command {
                    Some(command) => task.op(clock.now(), command),
                    None => stopping = goodbye(),
                },
                () = clock.sleep_until(task.machine().poll_timeout()) => task.input(clock.now(), Input::Timeout),
                worked = task.work() => if let Err(reason) = worked {
                    return End::Broken(reason);
                },
                _ = stop.wait_for(|stop| *stop), if stopping.is_none() => stopping = goodbye(),
                () = late(stopping) => return End::Stopped,
            }
        }
    }
}

/// However it ends, also with its runtime: who follows the status is told.
impl<T: Task, L: Link> Drop for Driver<T, L> {
    fn drop(&mut self) {
        // What has failed stays so.
        let now = self.status.borrow().clone();
        if !matches!(now, Status::Failed { .. } | Status::JournalFailed { .. }) {
            tell(&self.status, Status::Stopped);
        }
    }
}

/// Publishes a status, unless it is the one before.
fn tell(status: &watch::Sender<Status>, now: Status) {
    status.send_if_modified(|before| {
        let is_news = *before != now;
        *before = now;
        is_news
    });
}

/// Waits until then; for ever when there is no then.
async fn late(deadline: Option<tokio::time::Instant>) {
    match deadline {
        Some(at) => tokio::time::sleep_until(at).await,
        None => std::future::pending().await,
    }
}

fn take<T: Task, M: AsIncoming>(task: &mut T, clock: &Clock, event: LinkEvent<M>) {
    let now = clock.now();
    match event {
        LinkEvent::Subscribed(token, reason) => task.input(now, Input::Subscribed(token, reason)),
        LinkEvent::Published(token, reason) => task.input(now, Input::Published(token, reason)),
        LinkEvent::Message(message) => match message.as_incoming() {
            Some(mut incoming) => {
                if let Some(at) = message.received() {
                    incoming.arrived = Some(clock.instant(at));
                }
                task.input(now, Input::Message(&incoming));
            }
            None => debug!("a message that cannot be read was dropped"),
        },
        LinkEvent::ClientGone(client_id) => task.input(now, Input::ClientGone(&client_id)),
        LinkEvent::Writable => {}
    }
}
