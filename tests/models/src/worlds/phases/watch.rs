//! Transitions of one watch.

use std::fmt::Write;
use std::time::Duration;

use bytes::Bytes;
use statestore_proto::client::{Client, ClientConfig, WatchId, WatchPhase};
use statestore_proto::machine::{Input, Machine as _};
use statestore_proto::message::{Dialect, Notification, RequestKind, property};
use statestore_proto::time::{Instant, Now, UnixTime};
use statestore_proto::topic::NotificationTopic;
use statestore_proto::transport::{
    Correlation, Incoming, PublishToken, ReasonCode, SubscribeToken, Transmit,
};

use super::super::SmallWorld;
use crate::machines::request::response_topic;

const ID: &str = "watcher";
const KEY: &[u8] = b"k";
const TIMEOUT: u64 = 2_000;
const EPOCH: u64 = 1_696_374_425_000;

const CONNECT: &str = "a connection";
const LOSE: &str = "the connection is lost";
const GRANT: &str = "SUBACK";
const REGISTERED: &str = "KEYNOTIFY gets a response";
const READ: &str = "GET gets a response";
const READ_LESS: &str = "GET does not find a value of a later notification";
const FOUND: &str = "a renewal finds that changes may be missing";
const STOPPED: &str = "STOP gets a response";
const REFUSED: &str = "the store refuses";
const NONSENSE: &str = "the response is unusable";
const NO_SUBSCRIBER: &str = "no store is subscribed";
const LATE: &str = "no response in time";
const RETRY: &str = "the time of a retry";
const RENEW: &str = "the time of a renewal";
const OTHER: &str = "a new incarnation responds";
const OTHER_AGAIN: &str = "a new incarnation responds just after another";
const CHANGE: &str = "a change is reported";
const CHANGE_REGISTERING: &str =
    "a store without incarnation notifies before it responds to a renewal's KEYNOTIFY";
const CHANGE_READING: &str =
    "a store without incarnation notifies before it responds to a renewal's GET";
const MISSED: &str = "a change is not reported";
const LOST: &str = "events are lost";
const UNWATCH: &str = "it is ended";
const UNWATCH_EARLY: &str = "it is ended before SUBACK";

/// A request that the watch has sent.
#[derive(Clone, Debug)]
struct Sent {
    correlation: Correlation,
    token: PublishToken,
    kind: RequestKind,
}

/// A client with one watch, and the simulated store.
#[derive(Debug)]
pub struct WatchPhases {
    client: Client,
    watch: WatchId,
    now: u64,
    connected: bool,
    subscribes: Vec<SubscribeToken>,
    granted: bool,
    sent: Option<Sent>,
    /// The version of the key, and the version that the watch knows.
    version: u64,
    known: u64,
    /// The number of the store, if it has an incarnation.
    store: Option<u64>,
    /// A store has replied to the client.
    contacted: bool,
    replaced_at: Option<u64>,
    left: u8,
}

impl WatchPhases {
    /// A watch after the events of `story`, at a store with or without an incarnation, and the
    /// number of events to explore.
    ///
    /// # Panics
    /// If an event is impossible at its place.
    #[must_use]
    pub fn new(story: &[&'static str], has_incarnation: bool, left: u8) -> Self {
        let config = ClientConfig::new(ID, *b"noncenon");
        let config = config
            .timeout(Duration::from_millis(TIMEOUT))
            .renew_watches(Some(Duration::from_millis(TIMEOUT * 10)));
        let mut client = Client::new(config).expect("a plain name");
        let watch = client.watch(Self::time(1_000), KEY).expect("room");
        let mut world = Self {
            client,
            watch,
            now: 1_000,
            connected: false,
            subscribes: Vec::new(),
            granted: false,
            sent: None,
            version: 1,
            known: 0,
            store: has_incarnation.then_some(1),
            contacted: false,
            replaced_at: None,
            left: u8::MAX,
        };
        for choice in story {
            assert!(world.choices().contains(choice), "{choice}: {:?}", world.choices());
            world.choose(choice).expect("nothing is checked");
        }
        world.left = left;
        world
    }

    const fn time(millis: u64) -> Now {
        Now::new(Instant::from_millis(millis), UnixTime::from_millis(EPOCH + millis))
    }

    const fn now(&self) -> Now {
        Self::time(self.now)
    }

    fn is_asking(&self, kind: RequestKind) -> bool {
        self.sent.as_ref().is_some_and(|sent| sent.kind == kind)
    }

    /// Takes the packets of the client.
    fn drain(&mut self) {
        while self.client.poll_event().is_some() {}
        while let Some(transmit) = self.client.poll_transmit() {
            match transmit {
                Transmit::Subscribe { token, .. } => self.subscribes.push(token),
                Transmit::Publish(publish) => {
                    let payload = &publish.payload;
                    let has = |word: &[u8]| payload.windows(word.len()).any(|part| part == word);
                    let kind = match (has(b"STOP"), has(b"KEYNOTIFY")) {
                        (true, _) => RequestKind::Unwatch,
                        (_, true) => RequestKind::Watch,
                        _ => RequestKind::Get,
                    };
                    let correlation = publish.correlation_data.expect("every request has some");
                    let token = publish.token.expect("every request is acknowledged");
                    self.sent = Some(Sent { correlation, token, kind });
                }
                _ => {}
            }
        }
    }

    fn answer(&mut self, payload: &'static [u8]) {
        let Some(sent) = self.sent.take() else { return };
        let topic = response_topic(ID);
        self.submit(&topic, payload, Some(sent.correlation.as_bytes()));
    }

    fn submit(&mut self, topic: &str, payload: &[u8], correlation: Option<&[u8]>) {
        let payload = Bytes::copy_from_slice(payload);
        let version = format!("{}:{}:StateStore", EPOCH, self.version);
        let store = self.store.map(|store| format!("{store:016x}"));
        let mut incoming = Incoming::new(topic, &payload);
        incoming.correlation_data = correlation;
        incoming.user_property("__ts", &version);
        if let Some(store) = &store {
            incoming.user_property(property::INCARNATION, store);
        }
        self.client.handle(self.now(), Input::Message(&incoming));
        self.contacted = true;
    }

    fn notify(&mut self) {
        self.version += 1;
        let topic = NotificationTopic::new(ID, KEY).expect("short").to_string();
        let payload = Notification::Set(b"x".as_slice()).encode(Dialect::Deployed);
        self.submit(&topic, &payload, None);
    }

    /// The event of a GET reply while changes are reported.
    fn is_behind(&self) -> bool {
        self.phase_now() == Some(WatchPhase::Live) && self.known != self.version
    }

    fn phase_now(&self) -> Option<WatchPhase> {
        self.client.watch_phase(self.watch)
    }
}

impl SmallWorld for WatchPhases {
    fn choices(&self) -> Vec<&'static str> {
        let Some(phase) = self.phase_now().filter(|_| self.left > 0) else { return Vec::new() };
        let live = phase == WatchPhase::Live;
        let get = self.is_asking(RequestKind::Get);
        let asking = get || self.is_asking(RequestKind::Watch);
        let again = self.replaced_at.is_some_and(|at| self.now < at + TIMEOUT / 10);
        let change = match (live && asking && self.store.is_none(), get) {
            (true, false) => CHANGE_REGISTERING,
            (true, true) => CHANGE_READING,
            (false, _) => CHANGE,
        };
        let waits = self.client.poll_timeout().is_some() && self.sent.is_none();
        let options = [
            (!self.connected, CONNECT),
            (self.connected, LOSE),
            (self.connected && !self.granted, GRANT),
            (self.is_asking(RequestKind::Watch), REGISTERED),
            (get && !self.is_behind(), READ),
            (get && self.is_behind(), FOUND),
            (get && phase == WatchPhase::Reading, READ_LESS),
            (self.is_asking(RequestKind::Unwatch), STOPPED),
            (asking, REFUSED),
            (asking, NONSENSE),
            (self.sent.is_some(), NO_SUBSCRIBER),
            (self.sent.is_some(), LATE),
            (waits && self.connected && phase == WatchPhase::Waiting, RETRY),
            (waits && live, RENEW),
            (
                (asking || live) && self.contacted && self.store.is_some(),
                if again { OTHER_AGAIN } else { OTHER },
            ),
            (self.connected, change),
            (live, MISSED),
            (true, LOST),
            (true, if self.granted { UNWATCH } else { UNWATCH_EARLY }),
        ];
        options.into_iter().filter(|(can, _)| *can).map(|(_, name)| name).collect()
    }

    fn choose(&mut self, choice: &'static str) -> Result<(), String> {
        self.left -= 1;
        let now = self.now();
        match choice {
            CONNECT => {
                self.connected = true;
                self.client.handle(now, Input::Connected { session_present: false });
            }
            LOSE => {
                (self.connected, self.granted, self.sent) = (false, false, None);
                self.subscribes.clear();
                self.client.handle(now, Input::Disconnected);
            }
            GRANT => {
                self.granted = true;
                for token in std::mem::take(&mut self.subscribes) {
                    self.client.handle(now, Input::Subscribed(token, ReasonCode::GRANTED_QOS_1));
                }
            }
            REGISTERED | STOPPED => self.answer(b"+OK\r\n"),
            READ | FOUND => {
                self.known = self.version;
                self.answer(b"$1\r\nx\r\n");
            }
            READ_LESS => {
                self.notify();
                self.answer(b"$-1\r\n");
            }
            REFUSED => self.answer(b"-ERR not authorized\r\n"),
            NONSENSE => self.answer(b":1\r\n"),
            NO_SUBSCRIBER => {
                let token = self.sent.take().map(|sent| sent.token);
                let reason = ReasonCode::NO_MATCHING_SUBSCRIBERS;
                token
                    .into_iter()
                    .for_each(|it| self.client.handle(now, Input::Published(it, reason)));
            }
            LATE | RETRY | RENEW => {
                self.sent = None;
                let due = self.client.poll_timeout().map_or(self.now, Instant::as_millis);
                self.now = due.max(self.now);
                self.client.handle(self.now(), Input::Timeout);
            }
            OTHER | OTHER_AGAIN => {
                self.replaced_at = Some(self.now);
                self.store = self.store.map(|store| store + 1);
                if self.sent.is_some() {
                    self.answer(b"+OK\r\n");
                } else {
                    self.notify();
                }
            }
            CHANGE | CHANGE_REGISTERING | CHANGE_READING => {
                self.notify();
                self.known = self.version;
            }
            MISSED => self.version += 1,
            LOST => _ = self.client.refresh(now, self.watch),
            _ => {
                self.sent = None;
                self.client.unwatch(now, self.watch);
            }
        }
        self.drain();
        Ok(())
    }

    fn phase(&self) -> Option<String> {
        let phase = self.phase_now().map(|phase| format!("{phase:?}").to_lowercase());
        Some(phase.unwrap_or_else(|| "ended".into()))
    }

    fn describe(&self, out: &mut dyn Write) -> std::fmt::Result {
        write!(out, "{self:?}")
    }
}
