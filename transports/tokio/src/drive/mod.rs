//! The drive loop: connects a task with its machine to a link and to a queue of commands.

pub(crate) mod backoff;
pub(crate) mod clock;
pub(crate) mod task;

use std::future::poll_fn;
use std::pin::pin;
use std::task::Poll;
use std::time::Duration;

use statestore_proto::backoff::Backoff;
use statestore_proto::machine::{Input, Machine};
use statestore_proto::transport::Transmit;
use tokio::sync::{mpsc, watch};
use tracing::{debug, error, info, warn};

use crate::drive::clock::Clock;
use crate::drive::task::Task;
use crate::journal::JournalError;
use crate::link::address::Address;
use crate::link::{AsIncoming, Link, LinkError, LinkErrorKind, LinkEvent};
use crate::status::Status;

/// Maximum time that a full link or a store without a response may delay the end.
pub(crate) const SHUTDOWN_MAX: Duration = Duration::from_secs(1);

/// Commands that are accepted before the link is served again: about one burst of an application.
const COMMANDS_PER_TURN: usize = 64;

/// Events of the link that are handled before commands, deadlines and the journal are served again.
const EVENTS_PER_TURN: usize = 16;

/// Time for any sign of life of the broker after a request timed out.
const PROBE_MAX: Duration = Duration::from_secs(5);

/// State of the drive loop.
pub(crate) struct Driver<T: Task, L: Link> {
    pub(crate) task: T,
    pub(crate) link: L,
    pub(crate) commands: mpsc::Receiver<T::Command>,
    pub(crate) stop: watch::Receiver<bool>,
    pub(crate) status: watch::Sender<Status>,
    pub(crate) backoff: Backoff,
    /// The pause before the next attempt to connect.
    pub(crate) pause: Duration,
    pub(crate) clock: Clock,
}

/// The reason why a phase of the loop ended.
enum End {
    Stopped,
    Failed(LinkError),
    /// The background work of the task failed.
    JournalFailed(JournalError),
}

impl<T: Task, L: Link> Driver<T, L> {
    /// Runs until a stop is requested, or until a permanent error.
    pub(crate) async fn run(mut self) {
        let prepared = tokio::select! {
            prepared = self.task.prepare(&self.clock) => prepared,
            _ = self.stop.wait_for(|stop| *stop) => return,
        };
        if let Err(reason) = prepared {
            return self.handle_journal_error(reason);
        }
        loop {
            let address = match self.offline().await {
                Ok(address) => address,
                Err(End::Stopped) => return self.finish().await,
                Err(End::JournalFailed(reason)) => return self.handle_journal_error(reason),
                Err(End::Failed(error)) => {
                    if self.handle_link_error(error) {
                        return;
                    }
                    continue;
                }
            };
            let since = tokio::time::Instant::now();
            let end = self.online().await;
            // A client that is disconnected at once, for example by another client with its id,
            // keeps its growing pauses.
            if since.elapsed() > self.backoff.longest() {
                self.backoff.reset();
            }
            self.task.handle_input(self.clock.now(), Input::Disconnected);
            self.task.process_outputs(self.clock.now());
            match end {
                End::Stopped => {
                    self.link.disconnect().await;
                    return self.finish().await;
                }
                End::JournalFailed(reason) => {
                    // The link may still have responses of the commits before the one that failed.
                    self.link.disconnect().await;
                    return self.handle_journal_error(reason);
                }
                End::Failed(error) => {
                    let error = match &address {
                        Some(address) => error.with_address(address),
                        None => error,
                    };
                    if self.handle_link_error(error) {
                        return;
                    }
                }
            }
        }
    }

    /// Completes the background work that needs no connection.
    async fn finish(&mut self) {
        self.task.prepare_shutdown();
        self.task.process_outputs(self.clock.now());
        while !self.task.is_done() {
            if let Err(reason) = self.task.background_work().await {
                return self.handle_journal_error(reason);
            }
            self.task.process_outputs(self.clock.now());
        }
    }

    /// Publishes that the background work of the task has failed permanently.
    fn handle_journal_error(&self, error: JournalError) {
        error!(reason = %error, "stopped: the journal failed");
        publish_status(&self.status, Status::Failed(error.into()));
    }

    /// Publishes an error of the link and sets the next pause. Returns whether the error is final.
    fn handle_link_error(&mut self, error: LinkError) -> bool {
        self.pause = self.backoff.next_pause();
        self.task.handle_link_error(&error);
        let is_final = !error.is_transient();
        if is_final {
            warn!(%error, "no connection: the error is permanent");
            publish_status(&self.status, Status::Failed(error.into()));
        } else {
            warn!(%error, "no connection: will retry");
            publish_status(&self.status, Status::Offline { last_error: Some(error) });
        }
        is_final
    }

    /// Serves commands and deadlines while the link connects. Returns the address of the broker, if
    /// it has one.
    async fn offline(&mut self) -> Result<Option<Address>, End> {
        let Self { task, link, commands, stop, clock, .. } = self;
        let pause = self.pause;
        let attempt = async {
            tokio::time::sleep(pause).await;
            link.connect().await
        };
        tokio::pin!(attempt);
        let connected = loop {
            task.process_outputs(clock.now());
            let timeout = clock.sleep_until(task.machine().poll_timeout());
            tokio::select! {
                result = &mut attempt => break result,
                command = commands.recv(), if task.can_accept_command() => match command {
                    Some(command) => task.handle_command(clock.now(), command),
                    None => return Err(End::Stopped),
                },
                () = timeout => task.handle_input(clock.now(), Input::Timeout),
                worked = task.background_work() => worked.map_err(End::JournalFailed)?,
                _ = stop.wait_for(|stop| *stop) => return Err(End::Stopped),
            }
        };
        let connected = connected.map_err(End::Failed)?;
        info!(session_present = connected.session_present, "connected");
        let session_present = connected.session_present;
        task.handle_input(clock.now(), Input::Connected { session_present });
        Ok(connected.address)
    }

    /// Moves packets until the connection is lost.
    async fn online(&mut self) -> End {
        let Self { task, link, commands, stop, status, clock, .. } = self;
        // The one packet that the link returned because its queue was full.
        let mut refused: Option<Transmit> = None;
        // Deadline for sending the rest, once a stop is requested.
        let mut stopping: Option<tokio::time::Instant> = None;
        // Deadline of the probe after a request timed out: any event ends the probe.
        let mut probe: Option<tokio::time::Instant> = None;
        let deadline = || Some(tokio::time::Instant::now() + SHUTDOWN_MAX);
        loop {
            match stopping {
                Some(_) => task.prepare_shutdown(),
                // Requests that are accepted together are written together.
                None => accept_ready(task, commands, clock),
            }
            handle_due_timeout(task, clock);
            task.process_outputs(clock.now());
            if let Some(error) = task.take_connection_error() {
                link.disconnect().await;
                return End::Failed(error);
            }
            if task.machine().is_ready() {
                publish_status(status, Status::Online);
            }
            send_ready(task, link, &mut refused);
            if let Some(packet) = task.take_probe()
                && probe.is_none()
            {
                probe = Some(tokio::time::Instant::now() + PROBE_MAX);
                // A link that is full waits for the broker anyway.
                refused = refused.or_else(|| link.try_send(packet).err());
            }
            if stopping.is_some() && refused.is_none() && task.is_done() {
                return End::Stopped;
            }
            let timeout = clock.sleep_until(task.machine().poll_timeout());
            let can_accept_command = task.can_accept_command() && stopping.is_none();
            let event = tokio::select! {
                event = next_event(link, task.can_receive(), probe) => event,
                command = commands.recv(), if can_accept_command => {
                    match command {
                        Some(command) => task.handle_command(clock.now(), command),
                        None => stopping = deadline(),
                    }
                    continue;
                }
                () = timeout => {
                    task.handle_input(clock.now(), Input::Timeout);
                    continue;
                }
                worked = task.background_work() => match worked {
                    Ok(()) => continue,
                    Err(reason) => return End::JournalFailed(reason),
                },
                _ = stop.wait_for(|stop| *stop), if stopping.is_none() => {
                    stopping = deadline();
                    continue;
                }
                () = sleep_until(stopping) => return End::Stopped,
            };
            match handle_events(task, link, clock, &mut refused, event).await {
                Ok(is_alive) => probe = probe.filter(|_| !is_alive),
                Err(error) => return End::Failed(error),
            }
        }
    }
}

/// The next event of the link. Fails if there is none until the deadline of the probe, unless the
/// link may not return messages.
async fn next_event<L: Link>(
    link: &mut L,
    messages: bool,
    probe: Option<tokio::time::Instant>,
) -> Result<LinkEvent<L::Message>, LinkError> {
    let Some(mut until) = probe.filter(|_| messages) else {
        return link.next_event(messages).await;
    };
    loop {
        if let Ok(event) = tokio::time::timeout_at(until, link.next_event(messages)).await {
            return event;
        }
        // A large packet takes longer than the probe on a slow connection.
        let later = link.last_read().map(|at| at + PROBE_MAX);
        match later.filter(|later| *later > until) {
            Some(later) => until = later,
            None => break,
        }
    }
    let seconds = PROBE_MAX.as_secs();
    let text = format!("the broker sent nothing within {seconds} s after a request had timed out");
    Err(LinkError::new(LinkErrorKind::TimedOut, text))
}

/// Handles an event of the link, and further events that are ready now. These events together cause
/// one batch for the journal. Returns whether one of them is from the broker: a link may report
/// capacity without it.
async fn handle_events<T: Task, L: Link>(
    task: &mut T,
    link: &mut L,
    clock: &Clock,
    refused: &mut Option<Transmit>,
    first: Result<LinkEvent<L::Message>, LinkError>,
) -> Result<bool, LinkError> {
    let is_of_broker = |event: &LinkEvent<L::Message>| !matches!(event, LinkEvent::Writable);
    let first = first?;
    let mut is_alive = is_of_broker(&first);
    handle_event(task, clock, first);
    for _ in 1..EVENTS_PER_TURN {
        task.publish_stats();
        send_ready(task, link, refused);
        match poll_once(link.next_event(task.can_receive())).await {
            Some(event) => {
                let event = event?;
                is_alive |= is_of_broker(&event);
                handle_due_timeout(task, clock);
                handle_event(task, clock, event);
            }
            None => break,
        }
    }
    Ok(is_alive)
}

/// Handles a deadline that has passed: it comes before the next packet.
fn handle_due_timeout<T: Task>(task: &mut T, clock: &Clock) {
    let due = task.machine().poll_timeout();
    if due.is_some_and(|due| due <= clock.now().instant) {
        task.handle_input(clock.now(), Input::Timeout);
    }
}

/// Returns the output of a future that is ready now, and drops a future that is not.
async fn poll_once<F: Future>(future: F) -> Option<F::Output> {
    let mut future = pin!(future);
    poll_fn(|context| match future.as_mut().poll(context) {
        Poll::Ready(output) => Poll::Ready(Some(output)),
        Poll::Pending => Poll::Ready(None),
    })
    .await
}

/// Sends packets of the machine until all are sent, or the link is full. The packet that a full
/// link returns is in `refused`.
fn send_ready<T: Task, L: Link>(task: &mut T, link: &mut L, refused: &mut Option<Transmit>) {
    while let Some(transmit) = refused.take().or_else(|| task.machine().poll_transmit()) {
        let answered = match &transmit {
            Transmit::Publish(publish) => publish.answers(),
            _ => None,
        };
        if let Err(transmit) = link.try_send(transmit) {
            *refused = Some(transmit);
            return;
        }
        task.handle_sent(answered);
    }
}

/// Publishes the final status, even if the runtime drops the task.
impl<T: Task, L: Link> Drop for Driver<T, L> {
    fn drop(&mut self) {
        if !self.status.borrow().is_final() {
            publish_status(&self.status, Status::Stopped);
        }
    }
}

/// Accepts the commands that are ready, without waiting.
fn accept_ready<T: Task>(task: &mut T, commands: &mut mpsc::Receiver<T::Command>, clock: &Clock) {
    for _ in 0..COMMANDS_PER_TURN {
        if !task.can_accept_command() {
            return;
        }
        // The `select!` of the caller detects the end of the channel.
        let Ok(command) = commands.try_recv() else { return };
        task.handle_command(clock.now(), command);
    }
}

/// Publishes a status if it differs from the previous one.
fn publish_status(status: &watch::Sender<Status>, now: Status) {
    status.send_if_modified(|before| {
        let has_changed = *before != now;
        *before = now;
        has_changed
    });
}

/// Waits until the deadline; forever without a deadline.
async fn sleep_until(deadline: Option<tokio::time::Instant>) {
    match deadline {
        Some(at) => tokio::time::sleep_until(at).await,
        None => std::future::pending().await,
    }
}

fn handle_event<T: Task, M: AsIncoming>(task: &mut T, clock: &Clock, event: LinkEvent<M>) {
    let now = clock.now();
    match event {
        LinkEvent::Subscribed(token, reason) => {
            task.handle_input(now, Input::Subscribed(token, reason))
        }
        LinkEvent::Published(token, reason) => {
            task.handle_input(now, Input::Published(token, reason))
        }
        LinkEvent::Message(message) => match message.as_incoming() {
            Some(mut incoming) => {
                if let Some(at) = message.received() {
                    incoming.arrived = Some(clock.instant(at));
                }
                task.handle_input(now, Input::Message(&incoming));
            }
            None => debug!("message dropped: it is unreadable"),
        },
        LinkEvent::ClientGone(client_id) => task.handle_input(now, Input::ClientGone(&client_id)),
        LinkEvent::Writable => {}
    }
}
