//! The rules of the client.

mod counters;
mod incarnation;
mod listing;
mod readings;
mod renewal;
mod requests;
mod watches;

use bytes::Bytes;
use statestore_proto::client::{
    Client, ClientConfig, Event, Outcome, ReadRequest, Request, RequestId, SetRequest,
};
use statestore_proto::hlc::{Hlc, Version};
use statestore_proto::machine::{Input, Machine as _};
use statestore_proto::message::Command;
use statestore_proto::time::{Instant, Now, UnixTime};
use statestore_proto::topic::{NotificationFilter, NotificationTopic, ResponseTopic};
use statestore_proto::transport::{Incoming, Publish, ReasonCode, SubscribeToken, Transmit};

const EPOCH: u64 = 1_696_374_425_000;
const ID: &str = "client-id1";

/// A client and its clock.
struct Rig {
    client: Client,
    millis: u64,
    /// Milliseconds by which the wall clock was set back.
    set_back: u64,
    /// The incarnation in replies and notifications.
    incarnation: Option<&'static str>,
}

impl Rig {
    fn with(config: ClientConfig) -> Self {
        Self {
            client: Client::new(config).expect("a valid configuration"),
            millis: 0,
            set_back: 0,
            incarnation: None,
        }
    }

    fn offline() -> Self {
        Self::with(config())
    }

    fn ready() -> Self {
        let mut rig = Self::offline();
        rig.connect();
        rig
    }

    fn now(&self) -> Now {
        let unix = UnixTime::from_millis(EPOCH + self.millis - self.set_back);
        Now::new(Instant::from_millis(self.millis), unix)
    }

    /// Connects and grants all subscriptions. Leaves the other packets in the client.
    fn connect(&mut self) {
        self.client.handle(self.now(), Input::Connected { session_present: false });
        self.grant();
        assert_eq!(self.client.poll_event(), Some(Event::Ready));
    }

    fn grant(&mut self) {
        while let Some((_, token)) = self.subscribe() {
            self.client.handle(self.now(), Input::Subscribed(token, ReasonCode::GRANTED_QOS_1));
            if self.client.is_ready() && self.has_sent_subscribes() {
                break;
            }
        }
    }

    /// Returns whether no SUBSCRIBE is queued, according to the `Debug` output of the client.
    fn has_sent_subscribes(&self) -> bool {
        format!("{:?}", self.client).contains("subscriptions: []")
    }

    fn subscribe(&mut self) -> Option<(String, SubscribeToken)> {
        match self.client.poll_transmit()? {
            Transmit::Subscribe { filter, token } => Some((filter.to_string(), token)),
            other => panic!("{other:?} is not a SUBSCRIBE"),
        }
    }

    fn disconnect(&mut self) {
        self.client.handle(self.now(), Input::Disconnected);
    }

    fn pass(&mut self, millis: u64) {
        self.millis += millis;
        self.client.handle(self.now(), Input::Timeout);
    }

    fn submit(&mut self, request: impl Into<Request>) -> RequestId {
        self.client.submit(self.now(), request).unwrap()
    }

    /// Returns the next PUBLISH and its command.
    fn sent(&mut self) -> (Publish, Command<Bytes>) {
        let publish = self.published();
        let command = Command::decode(&publish.payload).unwrap();
        let command = command.map(|slice| publish.payload.slice_ref(slice));
        (publish, command)
    }

    fn published(&mut self) -> Publish {
        match self.client.poll_transmit() {
            Some(Transmit::Publish(publish)) => publish,
            other => panic!("{other:?} is not a PUBLISH"),
        }
    }

    fn reply(&mut self, to: &Publish, payload: &'static str, version: Option<&str>) {
        let payload = Bytes::from_static(payload.as_bytes());
        let topic = to.response_topic.clone().unwrap();
        let mut incoming = Incoming::new(&topic, &payload);
        incoming.correlation_data = to.correlation_data.as_ref().map(|data| data.as_bytes());
        incoming.user_property("__stat", "200");
        if let Some(version) = version {
            incoming.user_property("__ts", version);
        }
        if let Some(incarnation) = self.incarnation {
            incoming.user_property("statestore-incarnation", incarnation);
        }
        self.client.handle(self.now(), Input::Message(&incoming));
    }

    /// Delivers a notification that the key has this value, or was deleted.
    fn notify(&mut self, key: &str, value: Option<&str>, version: Option<&str>) {
        let topic = NotificationTopic::new(ID, key.as_bytes()).unwrap().to_string();
        let payload = match value {
            Some(value) => format!(
                "*4\r\n$6\r\nNOTIFY\r\n$3\r\nSET\r\n$5\r\nVALUE\r\n${}\r\n{value}\r\n",
                value.len()
            ),
            None => "*2\r\n$6\r\nNOTIFY\r\n$6\r\nDELETE\r\n".into(),
        };
        let payload = Bytes::from(payload);
        let mut incoming = Incoming::new(&topic, &payload);
        if let Some(version) = version {
            incoming.user_property("__ts", version);
        }
        if let Some(incarnation) = self.incarnation {
            incoming.user_property("statestore-incarnation", incarnation);
        }
        self.client.handle(self.now(), Input::Message(&incoming));
    }

    fn events(&mut self) -> Vec<Event> {
        std::iter::from_fn(|| self.client.poll_event()).collect()
    }

    fn completed(&mut self) -> (RequestId, Outcome) {
        match self.client.poll_event() {
            Some(Event::Completed { id, outcome }) => (id, outcome),
            other => panic!("{other:?} is not a completion"),
        }
    }
}

fn config() -> ClientConfig {
    ClientConfig::new(ID, *b"noncenon")
}

fn get() -> ReadRequest {
    Request::get("k")
}

fn set() -> SetRequest {
    Request::set("k", "v")
}

fn version(text: &str) -> Version {
    Version::new(text.parse::<Hlc>().unwrap())
}

fn response_topic() -> String {
    ResponseTopic::new(ID).unwrap().to_string()
}

fn filter() -> String {
    NotificationFilter::new(ID).unwrap().to_string()
}
