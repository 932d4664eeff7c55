//! The rules of the client, one by one.

mod counters;
mod incarnation;
mod listing;
mod readings;
mod renewal;
mod requests;
mod watches;

use bytes::Bytes;
use statestore_proto::client::{Client, ClientConfig, Event, Outcome, Request, RequestId};
use statestore_proto::hlc::{Hlc, Version};
use statestore_proto::message::{Command, Condition};
use statestore_proto::mqtt::{Incoming, Publish, ReasonCode, SubscribeToken, Transmit};
use statestore_proto::time::{Instant, Now, UnixTime};
use statestore_proto::topic::{NotificationFilter, NotificationTopic, ResponseTopic};

const EPOCH: u64 = 1_696_374_425_000;
const ID: &str = "client-id1";

/// A client and a time.
struct Rig {
    client: Client,
    millis: u64,
    /// What the store says of itself on replies and notifications.
    incarnation: Option<&'static str>,
}

impl Rig {
    fn with(config: ClientConfig) -> Self {
        Self { client: Client::new(config), millis: 0, incarnation: None }
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
        Now::new(Instant::from_millis(self.millis), UnixTime::from_millis(EPOCH + self.millis))
    }

    /// A new connection on which everything is granted; the packets that follow are left in the client.
    fn connect(&mut self) {
        self.client.handle_connected(self.now(), false);
        self.grant();
        assert_eq!(self.client.poll_event(), Some(Event::Ready));
    }

    fn grant(&mut self) {
        while let Some((_, token)) = self.subscribe() {
            self.client.handle_subscribed(self.now(), token, ReasonCode::GRANTED_QOS_1);
            if self.client.is_ready() && self.filters_open() {
                break;
            }
        }
    }

    /// Whether the next packet is no SUBSCRIBE; looked at through what the client prints.
    fn filters_open(&self) -> bool {
        format!("{:?}", self.client).contains("subscriptions: []")
    }

    fn subscribe(&mut self) -> Option<(String, SubscribeToken)> {
        match self.client.poll_transmit()? {
            Transmit::Subscribe { filter, token } => Some((filter.to_string(), token)),
            other => panic!("{other:?} is no SUBSCRIBE"),
        }
    }

    fn disconnect(&mut self) {
        self.client.handle_disconnected(self.now());
    }

    fn pass(&mut self, millis: u64) {
        self.millis += millis;
        self.client.handle_timeout(self.now());
    }

    fn submit(&mut self, request: Request) -> RequestId {
        self.client.submit(self.now(), request).unwrap()
    }

    /// The next PUBLISH and the command in it.
    fn sent(&mut self) -> (Publish, Command<Bytes>) {
        let publish = self.published();
        let command = Command::decode(&publish.payload).unwrap();
        let command = command.map(|slice| publish.payload.slice_ref(slice));
        (publish, command)
    }

    fn published(&mut self) -> Publish {
        match self.client.poll_transmit() {
            Some(Transmit::Publish(publish)) => publish,
            other => panic!("{other:?} is no PUBLISH"),
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
        self.client.handle_publish(self.now(), &incoming);
    }

    /// The store says that the key of `TOPIC` has this value, or none any more.
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
        self.client.handle_publish(self.now(), &incoming);
    }

    fn events(&mut self) -> Vec<Event> {
        std::iter::from_fn(|| self.client.poll_event()).collect()
    }

    fn completed(&mut self) -> (RequestId, Outcome) {
        match self.client.poll_event() {
            Some(Event::Completed { id, outcome }) => (id, outcome),
            other => panic!("{other:?} is no completion"),
        }
    }
}

fn config() -> ClientConfig {
    ClientConfig::new(ID, *b"noncenon").unwrap()
}

fn get() -> Request {
    Request::new(Command::Get { key: Bytes::from_static(b"k") })
}

fn set() -> Request {
    let (key, value) = (Bytes::from_static(b"k"), Bytes::from_static(b"v"));
    Request::new(Command::Set { key, value, condition: Condition::Always, expiry: None })
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
