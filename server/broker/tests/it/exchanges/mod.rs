//! Normative statements of the MQTT 5 standard about servers as exchanges of packets. The tables
//! are the text files in this folder, and `connect.txt` explains their format.

mod text;

use std::collections::VecDeque;

use self::text::{Fields, decode, encode, subscription};
use super::*;

const FILES: [(&str, &str); 5] = [
    ("connect.txt", include_str!("connect.txt")),
    ("sessions.txt", include_str!("sessions.txt")),
    ("publish.txt", include_str!("publish.txt")),
    ("subscribe.txt", include_str!("subscribe.txt")),
    ("errors.txt", include_str!("errors.txt")),
];

/// Packet identifier of the SUBSCRIBE of a step `subscribes`.
const SUBSCRIBE_ID: u16 = 100;

/// The statements of a case, its title, and its steps with their places.
struct Case {
    statements: Vec<&'static str>,
    title: &'static str,
    steps: Vec<(String, &'static str)>,
}

fn cases() -> Vec<Case> {
    let mut cases: Vec<Case> = Vec::new();
    for (file, text) in FILES {
        for (at, line) in (1..).zip(text.lines()) {
            let place = format!("{file}:{at}");
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            if line.starts_with(' ') {
                let case = cases.last_mut().expect("a case before its steps");
                let steps = line.split("; ").map(|step| (place.clone(), step.trim()));
                case.steps.extend(steps);
                continue;
            }
            let (statements, title) =
                line.split_once(": ").unwrap_or_else(|| panic!("{place}: no title"));
            let statements = statements.split(", ").collect();
            cases.push(Case { statements, title, steps: Vec::new() });
        }
    }
    cases
}

#[test]
fn exchanges_follow_the_standard() {
    let mut failures = Vec::new();
    let cases = cases();
    for case in &cases {
        let outcome = std::panic::catch_unwind(|| Exchange::default().run(case));
        if outcome.is_err() {
            failures.push(case.title);
        }
    }
    assert!(failures.is_empty(), "{} of {}: {failures:#?}", failures.len(), cases.len());
}

/// Each case names a statement or a section, and has an expectation.
#[test]
fn each_exchange_names_its_statement_and_expects_something() {
    let cases = cases();
    let mut titles = std::collections::BTreeSet::new();
    for case in &cases {
        for statement in &case.statements {
            let number =
                statement.strip_prefix("MQTT-").or_else(|| statement.strip_prefix("section "));
            let number = number.unwrap_or_else(|| panic!("{statement}: {}", case.title));
            assert!(number.starts_with(|digit: char| digit.is_ascii_digit()), "{statement}");
        }
        let expects = |(_, step): &(String, &str)| step.contains(" < ");
        assert!(case.steps.iter().any(expects), "{} expects nothing", case.title);
        assert!(titles.insert(case.title), "two cases: {}", case.title);
    }
    assert!(cases.len() >= 100, "{} cases", cases.len());
}

/// A broker and the clients of one case.
#[derive(Default)]
struct Exchange {
    net: Net,
    clients: BTreeMap<&'static str, Client>,
}

struct Client {
    id: ConnectionId,
    received: VecDeque<String>,
}

impl Exchange {
    fn run(mut self, case: &Case) {
        for (place, step) in &case.steps {
            let context = format!("{place}: {step}: {}", case.title);
            self.step(step, &context);
        }
        let names: Vec<&'static str> = self.clients.keys().copied().collect();
        for name in names {
            let context = format!("{} at the end of: {}", name, case.title);
            self.expect_nothing(name, &context);
        }
    }

    fn step(&mut self, step: &'static str, context: &str) {
        let mut words = step.splitn(3, ' ');
        let (first, second) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
        let rest = words.next().unwrap_or_default();
        match (first, second, rest) {
            ("limit", change, "") => self.change_limit(change, context),
            ("wait", time, "") => self.net.advance(seconds(time.parse().expect("seconds"))),
            (name, "connects", fields) => self.connect(name, "clean ", fields, context),
            (name, "resumes", fields) => self.connect(name, "", fields, context),
            (name, "subscribes", fields) => self.subscribe(name, fields, context),
            (name, "drops", "") => {
                let client = self.clients.remove(name).expect(context);
                self.net.close(client.id);
            }
            (name, ">", packet) => self.send(name, packet),
            (name, "<", "nothing") => self.expect_nothing(name, context),
            (name, "<", "closed") => self.expect_closed(name, context),
            (name, "<", packet) => {
                let received = self.receive(name);
                assert!(is_expected(&received, packet), "{context}\n received {received}");
            }
            _ => panic!("{context}: not a step"),
        }
    }

    fn change_limit(&mut self, change: &str, context: &str) {
        let (name, value) = change.split_once('=').expect(context);
        let value: u16 = value.parse().expect(context);
        self.net = Net::with_limits(|limits| match name {
            "receive_maximum" => limits.receive_maximum = value,
            "topic_aliases" => limits.topic_aliases = value,
            "levels" => limits.levels = value.into(),
            "packet_bytes" => limits.packet_bytes = value.into(),
            "session_expiry" => limits.session_expiry = seconds(value.into()),
            _ => panic!("{context}: unknown limit"),
        });
    }

    fn client(&mut self, name: &'static str) -> &mut Client {
        let net = &mut self.net;
        self.clients.entry(name).or_insert_with(|| Client {
            id: net.accept().expect("the broker accepts the connection"),
            received: VecDeque::new(),
        })
    }

    fn send(&mut self, name: &'static str, packet: &str) {
        let id = self.client(name).id;
        self.net.write(id, &encode(packet));
    }

    /// Connects, and expects a CONNACK with success. A client without Clean Start must find its
    /// session.
    fn connect(&mut self, name: &'static str, start: &str, fields: &str, context: &str) {
        let (client_id, fields) = match fields.strip_prefix("as ") {
            Some(named) => named.split_once(' ').unwrap_or((named, "")),
            None => (name, fields),
        };
        self.send(name, &format!("CONNECT {client_id} {start}{fields}"));
        let received = self.receive(name);
        let expected = if start.is_empty() { "CONNACK 00 session-present" } else { "CONNACK 00" };
        assert!(is_expected(&received, &format!("{expected} ...")), "{context}: {received}");
        assert_eq!(received.contains("session-present"), start.is_empty(), "{context}");
    }

    /// Subscribes, and expects a SUBACK that grants each QoS.
    fn subscribe(&mut self, name: &'static str, fields: &str, context: &str) {
        self.send(name, &format!("SUBSCRIBE id={SUBSCRIBE_ID} {fields}"));
        let fields = Fields::parse(fields);
        let granted: Vec<u8> =
            fields.groups.iter().map(|group| subscription(group).options.qos as u8).collect();
        let expected = format!("SUBACK id={SUBSCRIBE_ID} codes={}", hex::encode(granted));
        assert_eq!(self.receive(name), expected, "{context}");
    }

    /// Reads the output of the broker.
    fn poll(&mut self, name: &'static str) -> &mut VecDeque<String> {
        self.net.advance(Duration::ZERO);
        let id = self.client(name).id;
        let packets = self.net.receive_as(id, |packet| decode(&packet));
        let received = &mut self.client(name).received;
        received.extend(packets);
        received
    }

    fn receive(&mut self, name: &'static str) -> String {
        self.poll(name).pop_front().unwrap_or_else(|| "nothing".to_owned())
    }

    fn expect_nothing(&mut self, name: &'static str, context: &str) {
        let received = self.poll(name).pop_front();
        assert_eq!(received, None, "{context}");
        let id = self.client(name).id;
        assert!(!self.net.is_closed(id), "{context}: closed");
    }

    fn expect_closed(&mut self, name: &'static str, context: &str) {
        let received = self.poll(name).pop_front();
        assert_eq!(received, None, "{context}");
        let client = self.clients.remove(name).expect(context);
        assert!(self.net.is_closed(client.id), "{context}: open");
        self.net.close(client.id);
    }
}

/// Returns whether a packet is as expected. `...` at the end stands for any further fields.
fn is_expected(received: &str, expected: &str) -> bool {
    match expected.strip_suffix(" ...") {
        Some(start) => {
            let rest = received.strip_prefix(start);
            rest.is_some_and(|rest| rest.is_empty() || rest.starts_with(' '))
        }
        None => received == expected,
    }
}
