//! The packets that the deployed .NET client sends, and the replies that it requires. Its packages
//! need another runtime. Its sources are public, and each test names its source, below
//! `dotnet/src/Azure.Iot.Operations.Services/StateStore` of
//! <https://github.com/Azure/iot-operations-sdks> (05760149).

use statestore_testkit::wire::packets::{Publish, Reason};
use statestore_testkit::wire::raw::{
    Hello, Raw, RawRequest, array, blob, property, unix_ms, words,
};

use crate::deployment::{Mode, in_each_mode};

in_each_mode!(
    dotnet_parser_accepts_replies,
    dotnet_filter_is_granted_and_notifications_need_no_subscription,
    dotnet_lock_is_acquired_and_a_value_updated,
    dotnet_lock_is_acquired_with_presence,
    expiry_with_a_fraction_is_refused,
    large_and_empty_values_are_returned_unchanged,
    dotnet_client_gets_the_expected_error_for_a_timestamp_ahead,
    dotnet_parser_accepts_scan_pages,
);

const GUID: &str = "FA9AE35F-2F64-47CD-9BFF-08E2B32A0FE8";

/// A client. It subscribes to its response topic: its own prefix, then the request topic.
struct Client {
    id: &'static str,
    raw: Raw,
    response_topic: String,
}

impl Client {
    fn connect(port: u16, id: &'static str) -> Self {
        let mut raw = Raw::open(port, id, Hello::default());
        let response_topic = format!("clients/{id}/statestore/v1/{GUID}/command/invoke");
        raw.subscribe(&response_topic);
        Self { id, raw, response_topic }
    }

    fn of(&self, payload: Vec<u8>) -> RawRequest {
        let mut ask = RawRequest::deployed(self.id, payload);
        ask.response_topic = Some(self.response_topic.clone());
        ask
    }

    fn ask(&mut self, payload: Vec<u8>) -> Publish {
        let ask = self.of(payload);
        self.raw.ask(&ask)
    }

    fn request(&mut self, command: &[&str]) -> String {
        self.ask(words(command)).payload.escape_ascii().to_string()
    }
}

/// `StateStorePayloadParser.cs`, `RESP3/Resp3Protocol.cs`: the reply to a SET is `+OK` or nil, with
/// a version. Other replies fail. Nil is `$-1` or `:-1`. The reply to a removal is a number. The
/// replies to KEYNOTIFY and its STOP are `+OK`.
fn dotnet_parser_accepts_replies(mode: Mode) {
    let Some(here) = mode.start(&[]) else { return };
    let mut client = Client::connect(here.port(), "dotnet");
    for (command, payload, versioned) in [
        (&["SET", "k", "v", "NX", "PX", "60000"][..], r"+OK\r\n", true),
        (&["SET", "k", "w", "NX"], r":-1\r\n", true),
        (&["SET", "k", "w", "NEX"], r":-1\r\n", true),
        (&["SET", "k", "v", "NEX"], r"+OK\r\n", true),
        (&["GET", "k"], r"$1\r\nv\r\n", true),
        (&["VDEL", "k", "w"], r":-1\r\n", true),
        (&["VDEL", "k", "v"], r":1\r\n", true),
        (&["DEL", "k"], r":0\r\n", false),
        (&["GET", "k"], r"$-1\r\n", false),
        (&["KEYNOTIFY", "k"], r"+OK\r\n", false),
        (&["KEYNOTIFY", "k", "STOP"], r"+OK\r\n", false),
    ] {
        let answer = client.ask(words(command));
        assert_eq!(answer.payload.escape_ascii().to_string(), payload, "{command:?}");
        assert_eq!(property(&answer, "__ts").is_some(), versioned, "{command:?}");
        assert_eq!(property(&answer, "__stat"), Some("200"), "{command:?}");
    }
    // `TestKeyLengthZero` in its integration tests expects an error with any text.
    assert!(client.request(&["GET", ""]).starts_with("-ERR "));
}

/// `StateStoreClient.cs`, `ObserveAsync`: it subscribes with its plain client id and without a key,
/// to a topic that never has messages. It fails unless QoS 1 is granted. It expects notifications
/// on the topic of its hexadecimal client id. A SET has four elements and a removal two. Both have
/// a version, and the topic has eight levels.
fn dotnet_filter_is_granted_and_notifications_need_no_subscription(mode: Mode) {
    let Some(here) = mode.start(&[]) else { return };
    let mut client = Client::connect(here.port(), "dotnet");
    let odd = format!("clients/statestore/v1/{GUID}/dotnet/command/notify");
    assert_eq!(client.raw.subscribe(&odd), Reason::GRANTED_QOS_1);
    assert_eq!(client.request(&["KEYNOTIFY", "k"]), r"+OK\r\n");
    if mode.has_external_broker() {
        return mode.skip("such a broker delivers nothing without a subscription");
    }
    let mut writer = Client::connect(here.port(), "writer");
    assert_eq!(writer.request(&["SET", "k", "v"]), r"+OK\r\n");
    assert_eq!(writer.request(&["DEL", "k"]), r":1\r\n");
    for expected in [words(&["NOTIFY", "SET", "VALUE", "v"]), words(&["NOTIFY", "DELETE"])] {
        let notification = client.raw.notification();
        assert_eq!(notification.payload, expected);
        let topic = format!("clients/statestore/v1/{GUID}/646F746E6574/command/notify/6B");
        assert_eq!((notification.topic, topic.split('/').count()), (topic.clone().into(), 8));
    }
}

/// `LeasedLockClient.cs`, `AcquireLockAndUpdateValueAsync`, which `CampaignAndUpdateValueAsync`
/// also calls. It observes the lock, acquires it and ends the observation, which throws unless the
/// reply is `+OK`. Then it updates the value with the fencing token and releases the lock. An
/// external broker lacks a subscriber for the notification of the lock's change.
fn acquires_the_lock_and_updates_the_value(client: &mut Client, value: &str) {
    let id = client.id;
    let odd = format!("clients/statestore/v1/{GUID}/{id}/command/notify");
    assert_eq!(client.raw.subscribe(&odd), Reason::GRANTED_QOS_1);
    assert_eq!(client.request(&["KEYNOTIFY", "lock"]), r"+OK\r\n");
    let acquired = client.ask(words(&["SET", "lock", id, "NEX", "PX", "5000"]));
    assert_eq!(acquired.payload, "+OK\r\n");
    let token = property(&acquired, "__ts").expect("a version").to_owned();
    assert_eq!(client.request(&["KEYNOTIFY", "lock", "STOP"]), r"+OK\r\n", "{id} sets {value}");
    assert!(client.request(&["GET", "k"]).starts_with('$'));
    let set = client.of(words(&["SET", "k", value])).with("__ft", token);
    assert_eq!(client.raw.ask(&set).payload, "+OK\r\n");
    assert_eq!(client.request(&["VDEL", "lock", id]), r":1\r\n");
}

fn two_clients_take_turns(port: u16) {
    for _ in 0..2 {
        let mut clients = ["dotnet", "other"].map(|id| Client::connect(port, id));
        for value in ["1", "2", "3"] {
            for client in &mut clients {
                acquires_the_lock_and_updates_the_value(client, value);
            }
        }
        let [client, other] = clients;
        other.raw.disconnect();
        client.raw.disconnect();
    }
}

fn dotnet_lock_is_acquired_and_a_value_updated(mode: Mode) {
    let Some(here) = mode.start(&[]) else { return };
    two_clients_take_turns(here.port());
}

fn dotnet_lock_is_acquired_with_presence(mode: Mode) {
    if !mode.has_external_broker() {
        return mode.skip("a store inside the broker knows who has gone");
    }
    let log = "log_dest topic\nlog_type notice\nlog_type error";
    let Some(here) = mode.start_with(&["--presence-from-mosquitto-log"], log) else { return };
    two_clients_take_turns(here.port());
}

/// `StateStorePayloadParser.cs`, `BuildSetRequestPayload`: the milliseconds of a time span can have
/// a fraction.
fn expiry_with_a_fraction_is_refused(mode: Mode) {
    let Some(here) = mode.start(&[]) else { return };
    let mut client = Client::connect(here.port(), "dotnet");
    for fraction in ["1500.5", "1500,5", "1E+15", "0.5"] {
        let answer = client.request(&["SET", "k", "v", "PX", fraction]);
        assert_eq!(answer, r"-ERR syntax error\r\n", "{fraction}");
    }
    assert_eq!(client.request(&["GET", "k"]), r"$-1\r\n", "nothing was set");
    assert_eq!(client.request(&["SET", "k", "v", "PX", "1500"]), r"+OK\r\n");
}

/// `CreateStateStoreEntryWithLargeSizeKey`, `…Value`, `TestStateStoreEmptyValue` in its integration
/// tests: the values are zeros.
fn large_and_empty_values_are_returned_unchanged(mode: Mode) {
    let Some(here) = mode.start(&[]) else { return };
    let mut client = Client::connect(here.port(), "dotnet");
    for (key, value) in [(6_500, 36), (36, 65_000), (36, 0)] {
        let (key, value) = (vec![0; key], vec![0; value]);
        assert_eq!(client.ask(array(&[b"SET", &key, &value])).payload, "+OK\r\n");
        let found = client.ask(array(&[b"GET", &key])).payload;
        assert!(found == blob(&value), "{} and {} bytes", key.len(), value.len());
    }
}

/// `StateStoreOperationException.cs`: it compares the texts of errors exactly.
fn dotnet_client_gets_the_expected_error_for_a_timestamp_ahead(mode: Mode) {
    let Some(here) = mode.start(&[]) else { return };
    let mut client = Client::connect(here.port(), "dotnet");
    let ahead = format!("{:015}:00000:dotnet", unix_ms() + 120_000);
    let set = || words(&["SET", "k", "v"]);
    let stamped = client.of(set()).replacing("__ts", ahead.clone());
    assert_eq!(
        client.raw.ask(&stamped).payload,
        "-ERR the request timestamp is too far in the future; ensure that the client and broker \
         system clocks are synchronized\r\n"
    );
    let fenced = client.of(set()).with("__ft", ahead);
    assert_eq!(
        client.raw.ask(&fenced).payload,
        "-ERR the request fencing token timestamp is too far in the future; ensure that the \
         client and broker system clocks are synchronized\r\n"
    );
    assert_eq!(client.request(&["GET", "k"]), r"$-1\r\n", "nothing was set");
}

/// `StateStorePayloadParser.cs`, `ParseListKeysResponse`: a reply has one or two elements, the keys
/// and the token of the next page. `ListKeysPageIterator.cs` sends the same token again after an
/// error.
fn dotnet_parser_accepts_scan_pages(mode: Mode) {
    let Some(here) = mode.start(&[]) else { return };
    let mut client = Client::connect(here.port(), "dotnet");
    assert_eq!(client.request(&["SCAN", "*"]), r"*1\r\n*0\r\n");
    // These keys fill more than one page.
    let keys: Vec<String> = (0..200).map(|number| format!("{number:0>100}")).collect();
    for key in &keys {
        assert_eq!(client.request(&["SET", key, "v"]), r"+OK\r\n");
    }
    let first = client.ask(words(&["SCAN", "*"])).payload;
    let some = keys.iter().take_while(|key| contains(&first, key.as_bytes())).count();
    let listed = &keys[..some];
    assert!((2..200).contains(&some), "{some} keys on the first page");
    let page = |keys: &[String]| words(&keys.iter().map(String::as_str).collect::<Vec<_>>());
    let head = [b"*2\r\n".as_slice(), &page(listed)].concat();
    let token = first.strip_prefix(&head[..]).expect("two elements, the keys first");
    let length = token.len() - token.iter().position(|byte| *byte == b'\n').expect("a blob") - 3;
    let token = &token[token.len() - 2 - length..token.len() - 2];
    assert!(first.ends_with(&blob(token)), "then a token, and nothing behind it");
    let next = || array(&[b"SCAN", b"*", token]);
    let second = client.ask(next()).payload;
    assert!(!contains(&second, keys[some - 1].as_bytes()), "it goes on");
    assert!(contains(&second, keys[some].as_bytes()), "where it was");
    assert_eq!(client.ask(next()).payload, second, "the same again");
    assert_eq!(client.request(&["SCAN", "*", "1;1;"]), r"-ERR syntax error\r\n");
}

fn contains(bytes: &[u8], part: &[u8]) -> bool {
    bytes.windows(part.len()).any(|window| window == part)
}
