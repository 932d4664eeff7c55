//! Operations on a client, and checks of its documented guarantees.

mod checks;
mod inputs;

use std::collections::BTreeSet;
use std::time::Duration;

use bytes::Bytes;
use statestore_proto::client::{Client, ClientConfig, Request, RequestId, SubmitError, WatchId};
use statestore_proto::hlc::{FencingToken, Hlc};
use statestore_proto::limits::ClientLimits;
use statestore_proto::machine::{Input, Machine as _};
use statestore_proto::message::{Command, Condition, RequestKind};
use statestore_proto::time::{Instant, Now, UnixTime};
use statestore_proto::transport::{PublishToken, ReasonCode, SubscribeToken};

use super::store::KEYS;
use statestore_models::alphabet;
use statestore_models::machines::{Args, Reader, Server, WatchLog};

alphabet! {
    /// An operation on a client.
    pub enum ClientOp {
        /// Submits a request.
        Submit = b's', 3;
        /// Cancels a request.
        Cancel = b'c', 1;
        /// Watches a key.
        Watch = b'o', 3;
        /// Ends a watch.
        Unwatch = b'u', 1;
        /// Connects.
        Connect = b'C', 2;
        /// Disconnects.
        Disconnect = b'D', 1;
        /// Advances time and fires the deadlines.
        Pass = b'T', 1;
        /// Polls events.
        PollEvents = b'e', 2;
        /// Polls packets.
        PollPackets = b'p', 4;
        /// Delivers packets to the store, if there is one.
        Up = b'h', 4;
        /// Delivers packets of the store.
        Down = b'd', 4;
        /// Writes to the store as another client.
        Write = b'w', 4;
        /// A SUBACK; like all operations below, only without a store.
        Suback = b'A', 3;
        /// A PUBACK.
        Puback = b'P', 1;
        /// A reply that matches its request.
        Reply = b'r', 4;
        /// A reply that may not match.
        AnyReply = b'R', 1;
        /// A notification.
        Notification = b'n', 3;
        /// Any message, valid or not.
        AnyMessage = b'N', 1;
    }
}

/// The client id.
pub(crate) const ID: &str = "client";
const EPOCH: u64 = 1_696_374_425_000;
const REASONS: [u8; 6] = [0x00, 0x01, 0x10, 0x80, 0x87, 0x97];

/// A request that was sent.
#[derive(Clone, Debug)]
struct Sent {
    correlation: Vec<u8>,
    token: PublishToken,
    kind: RequestKind,
}

/// A client, the requests made to it, and the output still expected.
pub struct ClientRig {
    /// The machine.
    pub client: Client,
    /// The time.
    pub now: Now,
    /// The events polled so far, printed.
    pub events: Vec<String>,
    /// The packets polled so far, printed.
    pub sent: Vec<String>,
    /// State of the watches.
    pub log: WatchLog,
    limits: ClientLimits,
    server: Option<Server>,
    accepted: BTreeSet<RequestId>,
    requests: Vec<RequestId>,
    watches: Vec<(WatchId, Bytes)>,
    requested: Vec<Sent>,
    connected: bool,
    /// SUBSCRIBE packets of this connection without a SUBACK, and whether each is for
    /// notifications.
    subscribes: Vec<(SubscribeToken, bool)>,
    responses: bool,
    notifications: bool,
    keeps_session: bool,
}

impl ClientRig {
    /// A client with this configuration. Bit 0 of `flags` adds a store, bit 1 small limits, bit 2 a
    /// kept session, bit 3 watches that renew.
    ///
    /// # Panics
    /// Never: the configuration is valid.
    #[must_use]
    pub fn new(flags: u8) -> Self {
        let (honest, small) = (flags & 1 != 0, flags & 2 != 0);
        let limits = if small {
            ClientLimits { pending_max: 2, watches_max: 3, events_max: 0 }
        } else {
            ClientLimits { pending_max: 64, watches_max: 16, events_max: 4_096 }
        };
        let keeps_session = !honest && flags & 4 != 0;
        let config = ClientConfig::new(ID, *b"noncenon");
        let renewal = (flags & 8 != 0).then_some(Duration::from_millis(300));
        let config = config
            .limits(limits)
            .keeps_session(keeps_session)
            .timeout(Duration::from_secs(2))
            .renew_watches(renewal);
        Self {
            client: Client::new(config).expect("a plain id"),
            now: Now::new(Instant::from_millis(1_000), UnixTime::from_millis(EPOCH)),
            events: Vec::new(),
            sent: Vec::new(),
            log: WatchLog::default(),
            limits,
            server: honest.then(|| Server::new(&[ID])),
            accepted: BTreeSet::new(),
            requests: Vec::new(),
            watches: Vec::new(),
            requested: Vec::new(),
            connected: false,
            subscribes: Vec::new(),
            responses: false,
            notifications: false,
            keeps_session,
        }
    }

    /// Performs one operation.
    ///
    /// # Panics
    /// If the client violates a guarantee.
    pub fn apply(&mut self, (op, args): (ClientOp, Args)) {
        let [a, b, c, ..] = args;
        let honest = self.server.is_some();
        match op {
            ClientOp::Submit => self.submit(args),
            ClientOp::Cancel => {
                if let Some(id) = pick(&self.requests, a) {
                    self.client.cancel(id);
                }
            }
            ClientOp::Watch => self.watch(a),
            ClientOp::Unwatch => {
                if let Some((id, _)) = pick(&self.watches, a) {
                    self.client.unwatch(self.now, id);
                }
            }
            ClientOp::Connect => self.connect(a & 1 != 0),
            ClientOp::Disconnect => self.disconnect(),
            ClientOp::Pass => self.pass(u64::from(a) * 4 + u64::from(b & 15) * 1_000),
            ClientOp::PollEvents => (0..=a & 7).for_each(|_| _ = self.poll_event()),
            ClientOp::PollPackets => (0..=a & 7).for_each(|_| _ = self.poll_transmit()),
            ClientOp::Up => (0..=a & 3).for_each(|_| _ = self.step_up()),
            ClientOp::Down => (0..=a & 3).for_each(|_| _ = self.step_down()),
            ClientOp::Write => self.other_client_writes(a, b, c),
            ClientOp::Suback if !honest => self.suback(a, b),
            ClientOp::Puback if !honest => {
                if let Some(sent) = pick(&self.requested, a) {
                    self.client.handle(self.now, Input::Published(sent.token, reason(b)));
                }
            }
            ClientOp::Reply | ClientOp::AnyReply if !honest => {
                self.reply(op == ClientOp::Reply, args);
            }
            ClientOp::Notification if !honest => self.notification(args),
            ClientOp::AnyMessage => self.unrelated_message(args),
            ClientOp::Suback
            | ClientOp::Puback
            | ClientOp::Reply
            | ClientOp::AnyReply
            | ClientOp::Notification => {}
        }
        assert_eq!(self.client.outstanding(), self.accepted.len());
    }

    /// Moves the clocks to another start, before any other operation.
    pub fn start_at(&mut self, millis: u64) {
        self.set_time(millis);
    }

    /// Polls all output and returns its amount.
    ///
    /// # Panics
    /// If the client violates a guarantee.
    pub fn drain(&mut self) -> usize {
        while self.poll_transmit() {}
        let mut events = 0;
        while self.poll_event() {
            events += 1;
        }
        while self.poll_transmit() {}
        events
    }

    fn submit(&mut self, [kind, key, value, timeout, flags]: Args) {
        let key = Bytes::from_static(KEYS[usize::from(key) % KEYS.len()].as_bytes());
        let value = Bytes::from(vec![value; usize::from(value & 7)]);
        let command = match kind % 8 {
            0 => Command::Get { key },
            1 => Command::set(key, value.clone()),
            2 => Command::Del { key },
            3 => Command::VDel { key, value: value.clone() },
            4 => Command::Watch { key },
            _ => Command::Get { key: Bytes::new() },
        };
        let request = match kind % 8 {
            1 => Request::set(command.key(), value).persist(flags & 1 != 0).into(),
            6 => Request::scan("*", (value.len() > 4).then_some(value)).into(),
            7 => Request::scan("", None).into(),
            _ => Request::new(command),
        };
        let not_a_request = request.kind() == RequestKind::Watch;
        let empty = request.subject().is_empty();
        let fenced_read = flags & 2 != 0 && !request.kind().is_write();
        let mut request = request;
        if flags & 2 != 0 {
            let token: Hlc = "5:1:StateStore".parse().expect("a clock value");
            request = request.with_fencing_token(FencingToken::new(token));
        }
        if timeout & 3 != 0 {
            request = request.with_timeout(Duration::from_millis(u64::from(timeout) * 20));
        }
        let full = self.accepted.len() >= self.limits.pending_max;
        match self.client.submit(self.now, request) {
            Ok(id) => {
                assert!(
                    !full && !empty && !not_a_request && !fenced_read && self.accepted.insert(id)
                );
                self.requests.push(id);
            }
            Err(SubmitError::WatchCommand) => assert!(not_a_request),
            Err(SubmitError::EmptyKey | SubmitError::EmptyPattern) => assert!(empty),
            Err(SubmitError::FencingTokenOnRead) => assert!(fenced_read),
            Err(SubmitError::Full) => assert!(full),
            Err(error) => panic!("{error}"),
        }
    }

    fn watch(&mut self, key: u8) {
        let key = Bytes::from_static(KEYS[usize::from(key) % KEYS.len()].as_bytes());
        if let Ok(id) = self.client.watch(self.now, key.clone()) {
            assert!(self.watches.iter().all(|(other, _)| *other != id));
            self.watches.push((id, key));
        }
    }

    fn connect(&mut self, session_present: bool) {
        self.forget_connection();
        self.connected = true;
        if let Some(server) = &mut self.server {
            server.connect(0);
        }
        self.client.handle(
            self.now,
            Input::Connected { session_present: session_present && self.keeps_session },
        );
    }

    fn disconnect(&mut self) {
        self.forget_connection();
        if let Some(server) = &mut self.server {
            server.disconnect(0);
        }
        self.client.handle(self.now, Input::Disconnected);
    }

    fn forget_connection(&mut self) {
        (self.connected, self.responses, self.notifications) = (false, false, false);
        self.subscribes.clear();
    }

    /// Advances time and fires every deadline on the way.
    fn pass(&mut self, millis: u64) {
        let end = self.now.instant.as_millis().saturating_add(millis);
        loop {
            let due = self.client.poll_timeout().map_or(end, |due| due.as_millis().min(end));
            self.set_time(due.max(self.now.instant.as_millis()));
            if let Some(server) = self.server.as_mut().filter(|_| millis & 1 == 0) {
                server.timer(self.now);
            }
            self.client.handle(self.now, Input::Timeout);
            let next = self.client.poll_timeout();
            assert!(next.is_none_or(|next| next > self.now.instant), "{next:?} at {:?}", self.now);
            if self.now.instant.as_millis() >= end {
                return;
            }
        }
    }

    fn set_time(&mut self, millis: u64) {
        let instant = Instant::from_millis(millis);
        self.now = Now::new(instant, UnixTime::from_millis(EPOCH.saturating_add(millis)));
    }

    fn other_client_writes(&mut self, key: u8, value: u8, kind: u8) {
        let key = KEYS[usize::from(key) % KEYS.len()].as_bytes();
        let value = [value];
        let command = match kind & 3 {
            0 => Command::Del { key },
            kind => {
                let expiry =
                    statestore_proto::message::Expiry::from_millis(u64::from(kind - 1) * 300);
                Command::Set { key, value: value.as_slice(), condition: Condition::Always, expiry }
            }
        };
        if let Some(server) = &mut self.server {
            server.write(self.now, &command);
        }
    }

    fn suback(&mut self, which: u8, code: u8) {
        let Some((token, notifications)) = pick(&self.subscribes, which) else { return };
        self.subscribes.retain(|(other, _)| *other != token);
        let reason = reason(code);
        self.grant(notifications, !reason.is_error());
        self.client.handle(self.now, Input::Subscribed(token, reason));
    }

    const fn grant(&mut self, notifications: bool, granted: bool) {
        *(if notifications { &mut self.notifications } else { &mut self.responses }) = granted;
    }
}

fn reason(choice: u8) -> ReasonCode {
    ReasonCode(REASONS[usize::from(choice) % REASONS.len()])
}

fn pick<T: Clone>(from: &[T], which: u8) -> Option<T> {
    from.len().checked_sub(1).map(|last| from[last - usize::from(which) % from.len()].clone())
}

/// Oracle: the client keeps the poll contract in any order of calls, with a store and with generated
/// messages. Each request has one completion, and each watch reports the changes of its key.
///
/// Input: a byte of flags for the configuration, see [`ClientRig::new`], and operations
/// ([`ClientOp`]).
///
/// # Panics
/// If it violates a documented guarantee.
pub fn client_events(data: &[u8]) {
    let ([flags], reader) = Reader::<ClientOp>::new::<1>(data);
    let mut rig = ClientRig::new(flags);
    reader.for_each(|op| rig.apply(op));
    rig.finish();
}
